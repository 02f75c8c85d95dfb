// Recomputation affects only the memory of a run, and that memory is predicted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/comm/self_communicator.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/training_run.hpp"

namespace trireme::test {
namespace {

using model::Recomputation;
using model::RecomputeGranularity;
using model::RecomputeMethod;
using parallel::ScheduleKind;

constexpr auto full = RecomputeGranularity::full;
const Recomputation none;
const Recomputation selective{.granularity = RecomputeGranularity::selective};
const Recomputation uniform_1{.granularity = full, .layers = 1};
const Recomputation uniform_3{.granularity = full, .layers = 3};  // groups of 3 and 1
const Recomputation block_1{.granularity = full, .method = RecomputeMethod::block, .layers = 1};
const Recomputation block_3{.granularity = full, .method = RecomputeMethod::block, .layers = 3};

Recomputation distributed(Recomputation recomputation) {
  recomputation.distribute = true;
  return recomputation;
}

Layout recomputed_layout(int tensor, int pipeline, std::int64_t micro_batch, const Recomputation& recomputation,
                         bool sequence_parallel = false,
                         ScheduleKind schedule = ScheduleKind::one_forward_one_backward) {
  Layout layout{tensor, pipeline, {}};
  layout.options.micro_batch_size = micro_batch;
  layout.options.recomputation = recomputation;
  layout.options.parallel.sequence_parallel = sequence_parallel;
  layout.options.parallel.schedule = schedule;
  if (schedule == ScheduleKind::interleaved) layout.options.parallel.pipeline.chunks = 2;
  return layout;
}

/// Every kind of recomputation, on the grids of `ranks` ranks in turn.
std::vector<Layout> recomputed_layouts(int ranks) {
  if (ranks == 1) {
    std::vector<Layout> list;
    for (const Recomputation& r : {none, selective, uniform_1, uniform_3, block_1, block_3}) {
      list.push_back(recomputed_layout(1, 1, 4, r));
    }
    return list;
  }
  if (ranks == 2) {
    return {recomputed_layout(2, 1, 4, selective, true),
            recomputed_layout(2, 1, 4, uniform_3, true),
            recomputed_layout(2, 1, 2, distributed(uniform_1)),
            recomputed_layout(2, 1, 2, distributed(block_3)),
            recomputed_layout(1, 2, 1, uniform_1),
            recomputed_layout(1, 2, 1, block_1),
            recomputed_layout(1, 2, 1, selective, false, ScheduleKind::gpipe),
            recomputed_layout(1, 2, 1, uniform_1, false, ScheduleKind::zero_bubble),
            recomputed_layout(1, 2, 1, none, false, ScheduleKind::zero_bubble),
            recomputed_layout(1, 2, 2, uniform_3, false, ScheduleKind::interleaved),
            recomputed_layout(1, 1, 2, selective)};
  }
  return {recomputed_layout(2, 2, 2, selective, true, ScheduleKind::zero_bubble),
          recomputed_layout(2, 2, 2, distributed(uniform_1), false, ScheduleKind::zero_bubble),
          recomputed_layout(2, 2, 2, distributed(uniform_3)), recomputed_layout(4, 1, 4, block_3, true),
          recomputed_layout(2, 1, 2, uniform_1, true)};
}

TEST(Recomputation, MatchesTheRunOfOneRank) {
  TrainingRunConfig config;
  config.steps = 3;
  expect_run_of_one_rank(world(), config, recomputed_layouts(world().size()));
}

TEST(Recomputation, OfWholeLayersDoesNotChangeTheBits) {
  Communicator& ranks = world();
  for (Layout layout : recomputed_layouts(ranks.size())) {
    if (layout.options.recomputation.granularity != full) continue;
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
  const auto bytes = [&](const Recomputation& recomputation) {
    return bf16_activation_bytes(alone, recomputed_layout(1, 1, 4, recomputation));
  };
  EXPECT_LT(bytes(selective), bytes(none));
  EXPECT_LT(bytes(block_1), bytes(none));
  EXPECT_LT(bytes(block_3), bytes(block_1));
  EXPECT_LT(bytes(uniform_1), bytes(uniform_3));
  EXPECT_LT(bytes(uniform_1), bytes(selective));
}

TEST(Recomputation, DistributedInputsTakeLessMemory) {
  Communicator& ranks = world();
  if (ranks.size() != 2) GTEST_SKIP() << "two tensor ranks are enough";
  EXPECT_LT(bf16_activation_bytes(ranks, recomputed_layout(2, 1, 2, distributed(uniform_1))),
            bf16_activation_bytes(ranks, recomputed_layout(2, 1, 2, uniform_1)));
}

}  // namespace
}  // namespace trireme::test
