// Sequence parallelism and the overlap of tensor-parallel communication do not affect the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/comm/self_communicator.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/training_run.hpp"

namespace trireme::test {
namespace {

using parallel::ScheduleKind;

Layout layout_of(int tensor, int pipeline, std::int64_t micro_batch) {
  Layout layout{tensor, pipeline, {}};
  layout.options.micro_batch_size = micro_batch;
  layout.options.parallel.sequence_parallel = true;
  return layout;
}

/// Grids of `ranks` ranks whose tensor groups have two or more.
std::vector<Layout> layouts(int ranks) {
  if (ranks == 2) return {layout_of(2, 1, 1), layout_of(2, 1, 8)};
  Layout gpipe = layout_of(2, 2, 2);
  gpipe.options.parallel.schedule = ScheduleKind::gpipe;
  return {layout_of(4, 1, 2), layout_of(2, 1, 4), layout_of(2, 2, 1), gpipe};
}

TEST(SequenceParallel, ComputesTheRunOfOneRank) { expect_run_of_one_rank(world(), {}, layouts(world().size())); }

TEST(SequenceParallel, TheSameGridTwiceGivesTheSameBits) {
  expect_same_bits_twice(world(), {.steps = 3}, layouts(world().size()).back(),
                         {DType::fp64, DType::fp32, DType::bf16});
}

TEST(SequenceParallel, NarrowTypesStayWithinTheirTolerance) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    expect_run_of_one_rank(world(), {.dtype = dtype}, {layouts(world().size()).front()});
  }
}

TEST(SequenceParallel, IsIdleOnOneTensorRank) {
  SelfCommunicator alone;
  const Layout with = layout_of(1, 1, 2);
  Layout without = with;
  without.options.parallel.sequence_parallel = false;
  EXPECT_EQ(training_curve(alone, {.steps = 2}, with).loss, training_curve(alone, {.steps = 2}, without).loss);
}

TEST(SequenceParallel, RefusesASequenceThatDoesNotDivide) {
  TrainingRunConfig config;
  config.s = 31;
  EXPECT_THAT([&] { training_curve(world(), config, layout_of(2, 1, 1)); },
              testing::ThrowsMessage<ConfigError>(
                  testing::AllOf(testing::HasSubstr("31"), testing::HasSubstr("2 tensor ranks"))));
}

TEST(TensorParallelOverlap, DoesNotChangeTheBits) {
  Communicator& ranks = world();
  for (const bool sequence_parallel : {false, true}) {
    TrainingRunConfig config;
    config.dtype = DType::bf16;
    config.steps = 3;
    Layout layout = layouts(ranks.size()).back();
    layout.options.parallel.sequence_parallel = sequence_parallel;
    const Curve with = training_curve(ranks, config, layout);
    layout.options.parallel.async_tensor_all_reduce = false;
    const Curve without = training_curve(ranks, config, layout);
    SCOPED_TRACE(testing::Message() << layout);
    expect_same_bits(with, without);
  }
}

}  // namespace
}  // namespace trireme::test
