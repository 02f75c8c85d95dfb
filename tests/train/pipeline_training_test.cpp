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

/// Six layers, and six samples, so that every number of stages meets indivisible numbers of micro-batches.
TrainingRunConfig six_layers() {
  return {.model = {.layers = 6, .hidden = 32, .heads = 4, .ffn_hidden = 64, .max_positions = 32, .vocabulary = 300},
          .batch = 6,
          .steps = 4};
}

/// With 6 micro-batches, or 3 or 2.
std::vector<Layout> pipeline_layouts(int ranks) {
  if (ranks == 2) {
    return {"pp 2 interleaved vpp 3",
            "pp 2 interleaved vpp 3 b 2",
            "pp 2 zero-bubble",
            "pp 2 zero-bubble b 2",
            "pp 2 layers 1,2,2,1",
            "pp 2 layers 1,2,2,1 b 2",
            "pp 2 layers 2,4",
            "pp 2 gpipe first 5",
            "pp 2 zero-bubble embedding-alone",
            "pp 2 zero-bubble layers 6,0",
            "pp 2 layers 0,3,3,0",
            "tp 2 vpp 2",
            "zero-bubble"};
  }
  if (ranks == 3) return {"pp 3 vpp 2", "pp 3 vpp 2 b 3", "pp 3 zero-bubble", "pp 3 zero-bubble b 3"};
  if (ranks != 4) return {};
  return {"pp 4 layers 0,1,1,1,1,1,1,0",
          "pp 4 layers 0,1,1,1,1,1,1,0 b 2",
          "pp 4 zero-bubble first 1 last 1",
          "pp 4 embedding-alone b 2",
          "tp 2 pp 2 vpp 3 sp",
          "tp 2 pp 2 zero-bubble layers 4,2 b 2",
          "pp 2 chunks-of 1",
          "tp 2 pp 2 vpp 3 overlap-p2p",
          "tp 2 pp 2 zero-bubble overlap-p2p whole-messages",
          "pp 2 zero-bubble"};
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
  const Layout layout = fmt::format("pp {} layers {}", p, p == 2 ? "6,0" : p == 3 ? "3,3,0" : "2,2,2,0");
  for (const bool swiglu : {false, true}) {
    TrainingRunConfig config = six_layers();
    config.model.gated = swiglu;
    const std::size_t zero_bubble = activation_bytes(world(), config, layout.with("zero-bubble"));
    const std::size_t one_f_one_b = activation_bytes(world(), config, layout.with("1f1b"));
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
