// Training, evaluation and generation in every form of pipeline: schedule and stage sizes do not affect the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/comm/self_communicator.hpp"
#include "src/infer/perplexity.hpp"
#include "tests/support/generated.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/training_run.hpp"

namespace trireme::test {
namespace {

using parallel::PipelineSplit;
using parallel::ScheduleKind;

/// Six layers, and six samples, so that every number of stages meets indivisible numbers of micro-batches.
TrainingRunConfig six_layers() {
  TrainingRunConfig config;
  config.model = {.layers = 6, .hidden = 32, .heads = 4, .ffn_hidden = 64, .max_positions = 32, .vocabulary = 300};
  config.batch = 6;
  config.steps = 4;
  return config;
}

Layout pipeline_layout(int tensor, int pipeline, std::int64_t micro_batch, std::optional<ScheduleKind> schedule,
                       const PipelineSplit& split = {}) {
  Layout layout;
  layout.tensor = tensor;
  layout.pipeline = pipeline;
  layout.options.micro_batch_size = micro_batch;
  layout.options.parallel.schedule = schedule;
  layout.options.parallel.pipeline = split;
  return layout;
}

std::vector<Layout> pipeline_layouts(int ranks) {
  std::vector<Layout> list;
  if (ranks == 2) {
    for (const std::int64_t b : {1, 2}) {  // 6 and 3 micro-batches
      list.push_back(pipeline_layout(1, 2, b, ScheduleKind::interleaved, {.chunks = 3}));
      list.push_back(pipeline_layout(1, 2, b, ScheduleKind::zero_bubble));
      list.push_back(pipeline_layout(1, 2, b, {}, {.layers = {1, 2, 2, 1}}));
    }
    list.push_back(pipeline_layout(1, 2, 1, {}, {.layers = {2, 4}}));
    list.push_back(pipeline_layout(1, 2, 1, ScheduleKind::gpipe, {.first_stage = 5}));
    list.push_back(pipeline_layout(1, 2, 1, ScheduleKind::zero_bubble, {.standalone_embedding = true}));
    list.push_back(pipeline_layout(1, 2, 1, ScheduleKind::zero_bubble, {.layers = {6, 0}}));
    list.push_back(pipeline_layout(1, 2, 1, {}, {.layers = {0, 3, 3, 0}}));
    list.push_back(pipeline_layout(2, 1, 1, {}, {.chunks = 2}));
    list.push_back(pipeline_layout(1, 1, 1, ScheduleKind::zero_bubble));
  } else if (ranks == 3) {
    for (const std::int64_t b : {1, 3}) {  // 6 and 2 micro-batches
      list.push_back(pipeline_layout(1, 3, b, {}, {.chunks = 2}));
      list.push_back(pipeline_layout(1, 3, b, ScheduleKind::zero_bubble));
    }
  } else if (ranks == 4) {
    list.push_back(pipeline_layout(1, 4, 1, {}, {.layers = {0, 1, 1, 1, 1, 1, 1, 0}}));
    list.push_back(pipeline_layout(1, 4, 2, {}, {.layers = {0, 1, 1, 1, 1, 1, 1, 0}}));
    list.push_back(pipeline_layout(1, 4, 1, ScheduleKind::zero_bubble, {.first_stage = 1, .last_stage = 1}));
    list.push_back(pipeline_layout(1, 4, 2, {}, {.standalone_embedding = true}));
    list.push_back(pipeline_layout(2, 2, 1, {}, {.chunks = 3}));
    list.back().options.parallel.sequence_parallel = true;
    list.push_back(pipeline_layout(2, 2, 2, ScheduleKind::zero_bubble, {.layers = {4, 2}}));
    list.push_back(pipeline_layout(1, 2, 1, {}, {.layers_per_chunk = 1}));
    list.push_back(pipeline_layout(2, 2, 1, {}, {.chunks = 3}));
    list.back().options.parallel.overlap_p2p = true;
    list.push_back(pipeline_layout(2, 2, 1, ScheduleKind::zero_bubble));
    list.back().options.parallel.overlap_p2p = true;
    list.back().options.parallel.scatter_gather = false;
    list.push_back(pipeline_layout(1, 2, 1, ScheduleKind::zero_bubble));
  }
  return list;
}

TEST(PipelineTraining, EveryFormComputesTheLossesOfOneRank) {
  expect_run_of_one_rank(world(), six_layers(), pipeline_layouts(world().size()));
}

TEST(PipelineTraining, TheSameFormTwiceGivesTheSameBits) {
  TrainingRunConfig config = six_layers();
  config.steps = 2;
  for (const Layout& layout : pipeline_layouts(world().size())) {
    expect_same_bits_twice(world(), config, layout, {DType::bf16});
  }
}

TEST(PipelineTraining, EveryFormTakesTheMemoryPredicted) {
  for (const Layout& layout : pipeline_layouts(world().size())) {
    SCOPED_TRACE(testing::Message() << layout);
    activation_bytes(world(), six_layers(), layout);
  }
}

TEST(PipelineTraining, ZeroBubbleTakesTheActivationsOfOneForwardOneBackward) {
  const int p = world().size();
  // Equal stages of layers, and a separate stage for the head.
  const PipelineSplit split{.layers = p == 2   ? std::vector<int>{6, 0}
                                      : p == 3 ? std::vector<int>{3, 3, 0}
                                               : std::vector<int>{2, 2, 2, 0}};
  for (const bool swiglu : {false, true}) {
    TrainingRunConfig config = six_layers();
    config.model.gated = swiglu;
    const std::size_t zero_bubble =
        activation_bytes(world(), config, pipeline_layout(1, p, 1, ScheduleKind::zero_bubble, split));
    const std::size_t one_f_one_b =
        activation_bytes(world(), config, pipeline_layout(1, p, 1, ScheduleKind::one_forward_one_backward, split));
    if (world().rank() == 0) {
      EXPECT_EQ(zero_bubble, one_f_one_b);
    }
    std::int64_t max_micro_batches[] = {static_cast<std::int64_t>(zero_bubble), static_cast<std::int64_t>(one_f_one_b)};
    ImmediateStream host;
    world().all_reduce(host, TensorView(max_micro_batches, {2}), ReduceOp::max).wait(host);
    EXPECT_EQ(max_micro_batches[0],
              max_micro_batches[1]);  // no stage holds more than the first, which is the largest in 1F1B
  }
}

TEST(PipelineTraining, EveryFormEvaluatesAndGeneratesTheSame) {
  SelfCommunicator alone;
  TrainingRunConfig config = six_layers();
  config.model.hidden_dropout = 0;
  config.model.attention_dropout = 0;
  config.init_std = 0.3;  // makes the predictions certain
  const std::shared_ptr<data::TokenStore> corpus = synthetic_tokens(config);
  TrainingRun reference(alone, config, {});
  const double loss = infer::measure_perplexity(reference.gpt, *corpus).loss;
  infer::SamplingOptions sampling;
  const std::vector<std::int32_t> text = test::generated(reference.gpt, alone, {5, 4, 3}, 40, sampling);
  for (const Layout& layout : pipeline_layouts(world().size())) {
    SCOPED_TRACE(testing::Message() << layout);
    TrainingRun run(world(), config, layout);
    EXPECT_NEAR(infer::measure_perplexity(run.gpt, *corpus).loss / loss, 1,
                tolerance(DType::fp64, Comparison::other_average).loss);
    EXPECT_EQ(test::generated(run.gpt, world(), {5, 4, 3}, 40, sampling), text);
  }
}

}  // namespace
}  // namespace trireme::test
