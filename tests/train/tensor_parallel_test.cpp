// Sequence parallelism and the overlap of tensor-parallel communication do not affect the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/comm/self_communicator.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/training_run.hpp"

namespace trireme::test {
namespace {

TEST(SequenceParallel, NarrowTypesStayWithinTheirTolerance) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    expect_run_of_one_rank(world(), {.dtype = dtype, .steps = 3}, {fmt::format("tp {} sp b 2", world().size())});
  }
}

TEST(TensorParallelOverlap, DoesNotChangeTheBits) {
  Communicator& ranks = world();
  for (const bool sequence_parallel : {false, true}) {
    const TrainingRunConfig config{.dtype = DType::bf16, .steps = 2};
    const Layout layout =
        fmt::format("tp 2 b 2 {}{}", ranks.size() == 4 ? "pp 2 gpipe " : "", sequence_parallel ? "sp" : "");
    const Curve with = training_curve(ranks, config, layout);
    const Curve without = training_curve(ranks, config, layout.with("no-tensor-overlap"));
    SCOPED_TRACE(testing::Message() << layout);
    expect_same_bits(with, without);
  }
}

}  // namespace
}  // namespace trireme::test
