// Recomputation affects only the memory of a run, and that memory is predicted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/comm/self_communicator.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/training_run.hpp"

namespace trireme::test {
namespace {

/// Every kind of recomputation, on the grids of `ranks` ranks in turn.
std::vector<Layout> recomputed_layouts(int ranks) {
  if (ranks == 1) return {"b 4", "b 4 selective", "b 4 uniform 1", "b 4 uniform 3", "b 4 block 1", "b 4 block 3"};
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
            "b 2 selective"};
  }
  return {"tp 2 pp 2 sp zero-bubble b 2 selective", "tp 2 pp 2 zero-bubble b 2 uniform 1 distributed",
          "tp 2 pp 2 b 2 uniform 3 distributed", "tp 4 sp b 4 block 3", "tp 2 sp b 2 uniform 1"};
}

TEST(Recomputation, MatchesTheRunOfOneRank) {
  TrainingRunConfig config;
  config.steps = 3;
  expect_run_of_one_rank(world(), config, recomputed_layouts(world().size()));
}

TEST(Recomputation, OfWholeLayersDoesNotChangeTheBits) {
  Communicator& ranks = world();
  for (Layout layout : recomputed_layouts(ranks.size())) {
    if (layout.options.recomputation.granularity != model::RecomputeGranularity::full) continue;
    TrainingRunConfig config;
    config.dtype = DType::bf16;
    config.steps = 2;
    const Curve with = training_curve(ranks, config, layout);
    layout.options.recomputation = {};
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

TEST(Recomputation, DistributedInputsTakeLessMemory) {
  Communicator& ranks = world();
  if (ranks.size() != 2) GTEST_SKIP() << "two tensor ranks are enough";
  EXPECT_LT(bf16_activation_bytes(ranks, "tp 2 b 2 uniform 1 distributed"),
            bf16_activation_bytes(ranks, "tp 2 b 2 uniform 1"));
}

}  // namespace
}  // namespace trireme::test
