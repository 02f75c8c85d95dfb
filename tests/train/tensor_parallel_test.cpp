// Sequence parallelism, chunks of rows and the overlap of tensor-parallel communication do not affect the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/slow_communicator.hpp"
#include "tests/support/model_variants.hpp"
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

class RowChunks : public testing::TestWithParam<const char*> {};

// Collectives begin only at their waits: what is read earlier is not there.
TEST_P(RowChunks, ComputeTheRunOfOneRank) {
  TrainingRunConfig config{.steps = 2};
  model_variant(GetParam()).apply(config.model);
  const Curve expected = curves_of_one_rank(world(), {config}).front();
  for (const Layout layout : {"tp 2 row-chunks 4 b 2", "tp 2 sp row-chunks 2 b 2",
                              "tp 2 sp row-chunks 4 selective zero2", "tp 2 row-chunks 2 uniform 1"}) {
    SCOPED_TRACE(testing::Message() << layout);
    TrainingRun run(world(), config, layout, [](parallel::GridCommunicators& communicators) {
      communicators.tensor =
          std::make_unique<SlowCommunicator>(std::move(communicators.tensor), Link{}, OperationStart::at_wait);
    });
    Curve curve;
    for (std::int64_t i = 0; i < config.steps; ++i) {
      const train::TrainRecord record = run.step();
      curve.loss.push_back(record.loss());
      curve.grad_norm.push_back(record.grad_norm);
    }
    expect_close(curve, expected, tolerance(config.dtype, Comparison::other_order));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RowChunks,
                         testing::Values("GPT-2", "parallel branches with one norm", "post-norm BERT", "OLMo 2",
                                         "Gemma 2", "latent attention with YaRN", "experts"),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
                           return name;
                         });

}  // namespace
}  // namespace trireme::test
