// Sequence parallelism and the overlap of tensor-parallel communication do not affect the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/comm/self_communicator.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/training_run.hpp"

namespace trireme::test {
namespace {

Layout tensor_layout(int tensor, int pipeline) {
  Layout layout{tensor, pipeline, {}};
  layout.options.micro_batch_size = 2;
  layout.options.parallel.sequence_parallel = true;
  return layout;
}

TEST(SequenceParallel, NarrowTypesStayWithinTheirTolerance) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    expect_run_of_one_rank(world(), {.dtype = dtype, .steps = 3}, {tensor_layout(world().size(), 1)});
  }
}

TEST(TensorParallelOverlap, DoesNotChangeTheBits) {
  Communicator& ranks = world();
  for (const bool sequence_parallel : {false, true}) {
    const TrainingRunConfig config{.dtype = DType::bf16, .steps = 2};
    Layout layout = tensor_layout(2, ranks.size() / 2);
    if (ranks.size() == 4) layout.options.parallel.schedule = parallel::ScheduleKind::gpipe;
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
