#include "src/model/model_config.hpp"

#include <gtest/gtest.h>

namespace trireme::model {
namespace {

// Megatron-LM counts layers from 1 and leaves out those whose number the frequency divides.
TEST(AttentionWindow, OfEveryFewLayersLeavesOutTheLastOfThem) {
  const AttentionWindow window = AttentionWindow::every(127, 3, 7);
  for (const int layer : {0, 1, 3, 4, 6}) EXPECT_EQ(window.of(layer), 127) << layer;
  for (const int layer : {2, 5}) EXPECT_EQ(window.of(layer), -1) << layer;
  EXPECT_EQ(window.layers, "1101101");
}

TEST(AttentionWindow, IsTheSameHoweverItsLayersAreGiven) {
  EXPECT_EQ(AttentionWindow::every(7, 9, 4).layers, "");
  EXPECT_EQ(AttentionWindow::of_layers(7, "1111").layers, "");
  EXPECT_EQ(AttentionWindow::of_layers(7, "0101").layers, "0101");
  EXPECT_FALSE(AttentionWindow::of_layers(7, "0000").any());
  EXPECT_FALSE(AttentionWindow::every(7, 1, 4).any());
  EXPECT_TRUE(AttentionWindow::every(0, 2, 4).any());
}

}  // namespace
}  // namespace trireme::model
