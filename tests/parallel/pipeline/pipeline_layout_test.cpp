#include "src/parallel/pipeline/pipeline_layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "src/base/error.hpp"

namespace trireme::parallel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Message for an impossible split.
std::string refusal(int layers, int stages, const PipelineSplit& split) {
  try {
    PipelineLayout::of(layers, stages, split);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(PipelineLayout, DividesLayersEqually) {
  EXPECT_THAT(PipelineLayout::of(12, 4).layers, ElementsAre(3, 3, 3, 3));
  const PipelineLayout layout = PipelineLayout::of(12, 2, {.chunks = 3});
  EXPECT_THAT(layout.layers, ElementsAre(2, 2, 2, 2, 2, 2));
  EXPECT_EQ(layout.first_layer(3), 6);
  EXPECT_EQ(PipelineLayout::of(12, 2, {.layers_per_chunk = 3}).chunks, 2);
  EXPECT_EQ(PipelineLayout::of(12, 2, {.chunks = 2, .layers_per_chunk = 3}).chunks, 2);
}

TEST(PipelineLayout, FollowsAnExplicitList) {
  const PipelineLayout one = PipelineLayout::of(30, 4, {.layers = {7, 8, 8, 7}});
  EXPECT_EQ(one.chunks, 1);
  EXPECT_EQ(one.first_layer(2), 15);
  const PipelineLayout two = PipelineLayout::of(7, 2, {.layers = {0, 3, 4, 0}});
  EXPECT_EQ(two.chunks, 2);
  EXPECT_EQ(two.first_layer(3), 7);
}

TEST(PipelineLayout, GivesTheFirstAndLastStageTheirOwnNumbers) {
  EXPECT_THAT(PipelineLayout::of(30, 4, {.first_stage = 7, .last_stage = 7}).layers, ElementsAre(7, 8, 8, 7));
  EXPECT_THAT(PipelineLayout::of(30, 4, {.last_stage = 6}).layers, ElementsAre(8, 8, 8, 6));
  EXPECT_THAT(PipelineLayout::of(6, 2, {.first_stage = 2, .last_stage = 4}).layers, ElementsAre(2, 4));
  EXPECT_THAT(PipelineLayout::of(10, 2, {.chunks = 2, .first_stage = 4}).layers, ElementsAre(2, 3, 2, 3));
}

TEST(PipelineLayout, GivesTheEmbeddingItsOwnStage) {
  EXPECT_THAT(PipelineLayout::of(6, 4, {.standalone_embedding = true}).layers, ElementsAre(0, 2, 2, 2));
  EXPECT_THAT(PipelineLayout::of(5, 3, {.last_stage = 1, .standalone_embedding = true}).layers, ElementsAre(0, 4, 1));
}

TEST(PipelineLayout, RefusesSizesThatDoNotDivide) {
  EXPECT_THAT(refusal(30, 4, {}), HasSubstr("30 layers do not divide into 4 pipeline stages: choose <num_layers> as a "
                                            "multiple of 4"));
  EXPECT_THAT(refusal(8, 2, {.chunks = 3}), HasSubstr("8 layers do not divide into 2 pipeline stages of 3 chunks"));
  EXPECT_THAT(refusal(8, 2, {.layers_per_chunk = 3}), HasSubstr("8 layers on 2 stages do not divide into chunks of 3"));
  EXPECT_THAT(refusal(8, 4, {.first_stage = 1}), HasSubstr("of 8 layers 7 are left for the other 3 of 4 stages"));
  EXPECT_THAT(refusal(8, 2, {.first_stage = 3, .last_stage = 3}), HasSubstr("2 are left for the other 0"));
  EXPECT_THAT(refusal(8, 4, {.first_stage = 8}), HasSubstr("at least one"));
  EXPECT_THAT(refusal(7, 2, {.chunks = 2, .first_stage = 3}), HasSubstr("3, 4 layers"));
}

TEST(PipelineLayout, RefusesAListThatDoesNotFit) {
  EXPECT_THAT(refusal(8, 2, {.layers = {3, 4}}), HasSubstr("3,4 holds 7 layers, the model has 8"));
  EXPECT_THAT(refusal(8, 2, {.layers = {3, 3, 2}}), HasSubstr("names 3 chunks; 2 stages of 1 chunks are 2"));
  EXPECT_THAT(refusal(8, 2, {.chunks = 2, .layers = {4, 4}}), HasSubstr("names 2 chunks; 2 stages of 2 chunks are 4"));
  EXPECT_THAT(refusal(8, 3, {.layers = {4, 0, 4}}), HasSubstr("chunk 1 has 0 layers"));
  EXPECT_THAT(refusal(8, 3, {.layers = {9, -1, 0}}), HasSubstr("chunk 1 has -1 layers"));
}

TEST(PipelineLayout, RefusesContradictions) {
  EXPECT_THAT(refusal(8, 2, {.chunks = 4, .layers_per_chunk = 2}), HasSubstr("makes 2 chunks a rank"));
  EXPECT_THAT(refusal(8, 2, {.layers = {4, 4}, .first_stage = 4}), HasSubstr("leave out"));
  EXPECT_THAT(refusal(8, 2, {.first_stage = 4, .standalone_embedding = true}), HasSubstr("contradicts"));
  EXPECT_THAT(refusal(8, 2, {.first_stage = 0}), HasSubstr("must be at least 1"));
  EXPECT_THAT(refusal(8, 1, {.standalone_embedding = true}), HasSubstr("at least 2, not 1"));
  EXPECT_THAT(refusal(8, 2, {.chunks = 2, .standalone_embedding = true}), HasSubstr("one chunk a rank, not 2"));
  EXPECT_THAT(refusal(8, 2, {.layers_per_chunk = 2, .last_stage = 2}), HasSubstr("use <vpp> instead"));
}

TEST(ScheduleFor, FollowsTheChunks) {
  EXPECT_EQ(schedule_for({}, 1), ScheduleKind::one_forward_one_backward);
  EXPECT_EQ(schedule_for({}, 2), ScheduleKind::interleaved);
  EXPECT_EQ(schedule_for(ScheduleKind::zero_bubble, 1), ScheduleKind::zero_bubble);
  EXPECT_THROW(schedule_for(ScheduleKind::interleaved, 1), ConfigError);
  EXPECT_THROW(schedule_for(ScheduleKind::one_forward_one_backward, 2), ConfigError);
}

}  // namespace
}  // namespace trireme::parallel
