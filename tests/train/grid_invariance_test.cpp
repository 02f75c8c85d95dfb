// Full training runs on every grid that the ranks of this test allow, compared with figures from PyTorch and with one
// rank. The grid does not affect the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/comm/self_communicator.hpp"
#include "src/model/stage/model_parameters.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/synthetic_runs.hpp"

namespace trireme::test {
namespace {

/// Every grid of `ranks` ranks that the model's heads and layers and the global batch allow. At most two ranks take
/// every micro-batch size with every schedule. More take the largest in 1F1B and, in pipelines, the smallest in GPipe.
std::vector<Layout> grid_layouts(int ranks, const TrainingRunConfig& config) {
  std::vector<Layout> list;
  for (int tensor = 1; tensor <= ranks; ++tensor) {
    for (int pipeline = 1; tensor * pipeline <= ranks; ++pipeline) {
      if (ranks % (tensor * pipeline) != 0 || config.model.heads % tensor != 0 || config.model.layers % pipeline != 0) {
        continue;
      }
      const int data = ranks / (tensor * pipeline);
      std::vector<std::int64_t> micro_batches;
      for (std::int64_t b = 1; b * data <= config.batch; b *= 2) micro_batches.push_back(b);
      for (const std::int64_t b : micro_batches) {
        const Layout layout = fmt::format("tp {} pp {} b {}", tensor, pipeline, b);
        if (ranks <= 2 || b == micro_batches.back()) list.push_back(layout);
        if (pipeline > 1 && (ranks <= 2 || b == 1)) list.push_back(layout.with("gpipe"));
      }
    }
  }
  return list;
}

TEST(SyntheticRuns, EveryGridReproducesPyTorchInFp64) {
  Communicator& ranks = world();
  for (const char* name : {"synthetic", "synthetic_hot"}) {
    SyntheticRun run = synthetic_run(name);
    EXPECT_EQ(model::parameter_count(run.config.model), run.parameters);
    if (ranks.size() > 1) run.shorten(6);  // one rank, and the grids below in fp32, compute all steps
    for (const Layout& layout : grid_layouts(ranks.size(), run.config)) {
      SCOPED_TRACE(testing::Message() << name << ": " << layout);
      expect_close(training_curve(ranks, run.config, layout), run.curve, tolerance(DType::fp64, comparison_of(name)));
    }
  }
}

TEST(SyntheticRuns, Fp32StaysWithinItsTolerance) {
  Communicator& ranks = world();
  for (const char* name : {"synthetic", "synthetic_hot"}) {
    auto [config, parameters, expected] = synthetic_run(name);
    config.dtype = DType::fp32;
    const Layout layout = grid_layouts(ranks.size(), config).back();
    SCOPED_TRACE(testing::Message() << name << ": " << layout);
    const Curve curve = training_curve(ranks, config, layout);
    expect_close(curve, expected, tolerance(DType::fp32, comparison_of(name)));
  }
}

// With dropout and counter-based initial weights there are no external figures: one rank is the reference.

TEST(Dropout, EveryGridComputesTheLossesOfOneRank) {
  expect_run_of_one_rank(world(), {.steps = 3}, grid_layouts(world().size(), {}));
}

TEST(Dropout, TheSameGridTwiceGivesTheSameBits) {
  const TrainingRunConfig config{.steps = 2};
  expect_same_bits_twice(world(), config, grid_layouts(world().size(), config).back(),
                         {DType::fp64, DType::fp32, DType::bf16});
}

TEST(Dropout, ChangesTheRun) {
  Communicator& ranks = world();
  TrainingRunConfig config;
  config.steps = 1;
  const Curve with = training_curve(ranks, config, grid_layouts(ranks.size(), config).front());
  config.model.hidden_dropout = 0;
  config.model.attention_dropout = 0;
  const Curve without = training_curve(ranks, config, grid_layouts(ranks.size(), config).front());
  EXPECT_GT(std::abs(with.loss[0] - without.loss[0]), 1e-4);
}

}  // namespace
}  // namespace trireme::test
