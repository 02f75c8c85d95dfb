#include "src/parallel/pipeline/layout_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "src/parallel/pipeline/pipeline_layout.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::parallel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(const std::string& text) {
  return test::message_of([&] { layers_of_chunks(text); });
}

TEST(LayoutText, IsAListOfNumbers) {
  EXPECT_THAT(layers_of_chunks("0,3,4,0"), ElementsAre(0, 3, 4, 0));
  EXPECT_THAT(layers_of_chunks("12"), ElementsAre(12));
  EXPECT_THAT(refusal("1,x"), HasSubstr("1,x: 'x' is not a number of layers"));
  EXPECT_THAT(refusal("1,,2"), HasSubstr("'' is not a number of layers"));
  EXPECT_THAT(refusal("2147483647"), HasSubstr("is not a number of layers"));
}

// Layouts and stages as PipelineParallelLayerLayout of Megatron-LM (August 2026) gives them.
TEST(LayoutText, TakesMegatronsPieces) {
  EXPECT_THAT(layers_of_chunks("Ett|tt|tt|ttL"), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(layers_of_chunks("Ettt|ttt|tttt|ttL"), ElementsAre(3, 3, 4, 2));
  EXPECT_THAT(layers_of_chunks("E|t*3|t*3|t*2,L"), ElementsAre(0, 3, 3, 2));
  EXPECT_THAT(layers_of_chunks("Et|tt|tt|tt|tt|tt|tt|tL"), ElementsAre(1, 2, 2, 2, 2, 2, 2, 1));
  EXPECT_THAT(layers_of_chunks("E|(t|)*6L"), ElementsAre(0, 1, 1, 1, 1, 1, 1, 0));
  EXPECT_THAT(layers_of_chunks("Ettt|ttt,|,ttt,|,tttL"), ElementsAre(3, 3, 3, 3));
  EXPECT_THAT(layers_of_chunks("Et*0|ttL"), ElementsAre(0, 2));
  EXPECT_THAT(layers_of_chunks("EttL"), ElementsAre(2));
  EXPECT_THAT(layers_of_chunks("E,t*12,L"), ElementsAre(12));
  EXPECT_THAT(layers_of_chunks("E|(tt|t)*2|L"), ElementsAre(0, 2, 3, 1, 0));
  EXPECT_THAT(layers_of_chunks("E(tt|tt|)*3L"), ElementsAre(2, 2, 2, 2, 2, 2, 0));
  const PipelineLayout layout = PipelineLayout::of(62, 16, {.layers = layers_of_chunks("Et*3|(tt|)*29,t|L")});
  EXPECT_EQ(layout.chunks, 2);
  EXPECT_EQ(layout.first_layer(16), 33);  // the first rank's second chunk
  EXPECT_EQ(layout.first_layer(30), 61);
}

TEST(LayoutText, RefusesOtherText) {
  for (const char* text : {"(Et|tt)|ttL", "E(t|)*|L", "E((t)*2|)*2L", "Et*|tL", "Et*-1|tL"}) {
    EXPECT_THAT(refusal(text), HasSubstr("is not one of E (embedding), t (layer), L (loss)")) << text;
  }
  EXPECT_THAT(refusal("Ett|tXL"), HasSubstr("Ett|tXL: 'X' is not one of E"));
  EXPECT_THAT(refusal("Ett |ttL"), HasSubstr("' ' is not one of E"));
  EXPECT_THAT(refusal("Ett|ttmL"), HasSubstr("m, a multi-token prediction, is not supported"));
  for (const char* text : {"tt|ttL", "Ett|tt", "EEtt|ttL", "Ett|ttLL", "Ett|Ltt", "tE|tL", "Ett|ttL|", "|"}) {
    EXPECT_THAT(refusal(text), HasSubstr("E, the embedding, must appear once, at the beginning")) << text;
  }
  EXPECT_THAT(refusal("Et*99999999999|L"), HasSubstr("more than 100000 pieces"));
  EXPECT_THAT(refusal("E(tt|)*99999L"), HasSubstr("more than 100000 pieces"));
}

}  // namespace
}  // namespace trireme::parallel
