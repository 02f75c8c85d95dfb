// Recomputation and activations in host memory affect only the memory of a run, and that memory is predicted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/comm/self_communicator.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/training_run.hpp"

namespace trireme::test {
namespace {

/// Every kind of recomputation, on the grids of `ranks` ranks in turn.
std::vector<Layout> recomputed_layouts(int ranks) {
  if (ranks == 1)
    return {"b 4",         "b 4 selective", "b 4 uniform 1",          "b 4 uniform 3",
            "b 4 block 1", "b 4 block 3",   "b 4 selective offload 4"};
  if (ranks == 2) {
    return {"tp 2 sp b 4 selective",
            "tp 2 sp b 4 uniform 3",
            "tp 2 b 2 uniform 1 distributed",
            "tp 2 b 2 block 3 distributed",
            "pp 2 uniform 1",
            "pp 2 block 1",
            "pp 2 gpipe selective",
            "pp 2 zero-bubble uniform 1",
            "pp 2 zero-bubble",
            "pp 2 interleaved vpp 2 b 2 uniform 3",
            "tp 2 sp b 4 offload 4",
            "pp 2 zero-bubble offload 2",
            "pp 2 interleaved vpp 2 b 2 offload 1",
            "b 2 selective"};
  }
  return {"tp 2 pp 2 sp zero-bubble b 2 selective",
          "tp 2 pp 2 zero-bubble b 2 uniform 1 distributed",
          "tp 2 pp 2 b 2 uniform 3 distributed",
          "tp 4 sp b 4 block 3",
          "tp 2 sp b 2 uniform 1",
          "tp 2 pp 2 sp zero-bubble b 2 selective offload 2",
          "tp 4 b 4 block 1 distributed offload 3"};
}

TEST(Recomputation, MatchesTheRunOfOneRank) {
  TrainingRunConfig config;
  config.steps = 3;
  expect_run_of_one_rank(world(), config, recomputed_layouts(world().size()));
}

TEST(Recomputation, OfWholeLayersAndOffloadingDoNotChangeTheBits) {
  Communicator& ranks = world();
  for (Layout layout : recomputed_layouts(ranks.size())) {
    model::Recomputation& recomputation = layout.options.recomputation;
    const bool selective = recomputation.selective();
    if (recomputation.granularity == model::RecomputeGranularity::none && recomputation.offloaded_layers == 0) continue;
    if (selective && recomputation.offloaded_layers == 0) continue;
    TrainingRunConfig config;
    config.dtype = DType::bf16;
    config.steps = 2;
    const Curve with = training_curve(ranks, config, layout);
    recomputation.offloaded_layers = 0;
    if (!selective) recomputation = {};
    const Curve without = training_curve(ranks, config, layout);
    SCOPED_TRACE(testing::Message() << layout);
    expect_same_bits(with, without);
  }
}

std::size_t bf16_activation_bytes(Communicator& ranks, const Layout& layout) {
  TrainingRunConfig config;
  config.dtype = DType::bf16;
  config.steps = 1;
  return activation_bytes(ranks, config, layout);
}

TEST(Recomputation, TakesTheMemoryPredicted) {
  Communicator& ranks = world();
  for (const Layout& layout : recomputed_layouts(ranks.size()))
    EXPECT_GT(bf16_activation_bytes(ranks, layout), 0u) << layout;
}

TEST(Recomputation, SavesMemory) {
  SelfCommunicator alone;
  const auto bytes = [&](const Layout& layout) { return bf16_activation_bytes(alone, layout.with("b 4")); };
  EXPECT_LT(bytes("selective"), bytes(""));
  EXPECT_LT(bytes("block 1"), bytes(""));
  EXPECT_LT(bytes("block 3"), bytes("block 1"));
  EXPECT_LT(bytes("uniform 1"), bytes("uniform 3"));
  EXPECT_LT(bytes("uniform 1"), bytes("selective"));
}

TEST(Recomputation, OffloadedLayersTakeTheMemoryOfThree) {
  SelfCommunicator alone;
  TrainingRunConfig config;
  config.model.layers = 8;
  config.dtype = DType::bf16;
  config.steps = 1;
  const auto bytes = [&](const Layout& layout) { return activation_bytes(alone, config, layout.with("b 4")); };
  const std::size_t all = bytes(""), of_layer = (all - bytes("offload 4")) / (4 - 3);
  EXPECT_EQ(all - bytes("offload 8"), (8 - 3) * of_layer);
  EXPECT_GT(of_layer, all / 12);
  EXPECT_EQ(bytes("offload 3"), all);
}

TEST(Recomputation, OptimizerStateInHostMemoryChangesNeitherTheBitsNorThePrediction) {
  Communicator& ranks = world();
  for (const Layout& layout : std::vector<Layout>{"b 4 bucket 5000", "b 2 zero1 bucket 5000 overlap gather"}) {
    if (ranks.size() == 4) continue;  // as two ranks
    SCOPED_TRACE(testing::Message() << layout);
    TrainingRunConfig config;
    config.dtype = DType::bf16;
    config.steps = 2;
    const Curve expected = training_curve(ranks, config, layout);
    for (const double fraction : {0.5, 1.0}) {
      config.optimizer.offload = {.fraction = fraction, .piece_elements = 4096};
      expect_same_bits(training_curve(ranks, config, layout), expected);
      activation_bytes(ranks, config, layout);
    }
  }
}

TEST(LayerSpans, SpreadOffloadedLayersAndKeepTheLast) {
  const auto texts = [](const model::Recomputation& recomputation, int layers) {
    std::string text;
    for (const model::LayerSpan& span : model::layer_spans(recomputation, layers)) {
      text += fmt::format("{}{}+{}", text.empty() ? "" : " ", span.first, span.layers);
      if (span.recomputed) text += "r";
      if (span.offloaded > 0) text += fmt::format("h{}", span.offloaded);
    }
    return text;
  };
  EXPECT_EQ(texts({}, 6), "0+6");
  EXPECT_EQ(texts({.offloaded_layers = 2}, 6), "0+1h1 1+2 3+1h2 4+2");
  EXPECT_EQ(texts({.offloaded_layers = 4}, 6), "0+1h1 1+1 2+1h2 3+1h3 4+1 5+1h4");
  EXPECT_EQ(texts({.offloaded_layers = 9}, 3), "0+1h1 1+1h2 2+1h3");
  model::Recomputation block{.granularity = model::RecomputeGranularity::full,
                             .method = model::RecomputeMethod::block,
                             .layers = 2,
                             .offloaded_layers = 1};
  EXPECT_EQ(texts(block, 5), "0+1r 1+1r 2+1h1 3+2");
  EXPECT_EQ(texts(block, 2), "0+1r 1+1r");
}

TEST(Recomputation, DistributedInputsTakeLessMemory) {
  Communicator& ranks = world();
  if (ranks.size() != 2) GTEST_SKIP() << "two tensor ranks are enough";
  EXPECT_LT(bf16_activation_bytes(ranks, "tp 2 b 2 uniform 1 distributed"),
            bf16_activation_bytes(ranks, "tp 2 b 2 uniform 1"));
}

}  // namespace
}  // namespace trireme::test
