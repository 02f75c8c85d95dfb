// Biases of routers: their updates, precision and checkpoints.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "src/backend/host_numbers.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/training_run.hpp"

namespace trireme::train {
namespace {

using test::Layout;
using test::TrainingRun;
using test::TrainingRunConfig;

using Numbers = std::vector<double>;

/// A run of one layer with four experts, two a token, whose biases change by `rate`.
TrainingRunConfig run_with(double rate, DType dtype = DType::fp64) {
  TrainingRunConfig config = test::tiny_run();
  config.model.linear_bias = false;
  config.model.hidden_dropout = config.model.attention_dropout = 0;
  config.model.experts = {.count = 4,
                          .score = RouterScore::sigmoid,
                          .router_bias = true,
                          .balance = {{model::BalanceLoss::none}},
                          .bias_update_rate = rate};
  config.dtype = dtype;
  return config;
}

/// This rank's piece of the layer's biases.
checkpoint::StateTensor bias_of(TrainingRun& run) {
  const std::vector<checkpoint::StateTensor> tensors = run.trainer.state_tensors();
  return *std::ranges::find(tensors, "model/h.0.mlp.router.bias", &checkpoint::StateTensor::name);
}

Numbers biases_of(TrainingRun& run) {
  return read_numbers(*run.backend, run.backend->compute_stream(), bias_of(run).data);
}

/// Makes the scores of all experts 1/2: each token chooses those of the largest biases, then of the lowest numbers.
void level_scores(TrainingRun& run) {
  run.backend->elementwise().fill(run.backend->compute_stream(), 0,
                                  run.gpt.parameters().at("h.0.mlp.router.weight").value);
}

TEST(RouterBiases, MoveAgainstTheLoad) {
  if (test::world().size() > 1) GTEST_SKIP() << "runs on one rank";
  TrainingRun run(test::world(), run_with(0.25), {});
  level_scores(run);
  run.step();
  EXPECT_EQ(biases_of(run), (Numbers{-0.25, -0.25, 0.25, 0.25})) << "all tokens choose experts 0 and 1";
  level_scores(run);
  run.step();
  EXPECT_EQ(biases_of(run), Numbers(4, 0)) << "all tokens choose experts 2 and 3";

  TrainingRunConfig even = run_with(0.25);
  even.model.experts.per_token = 4;
  TrainingRun balanced(test::world(), even, {});
  balanced.step();
  EXPECT_EQ(biases_of(balanced), Numbers(4, 0));
}

TEST(RouterBiases, FollowTheChoicesBeforeTheCapacity) {
  if (test::world().size() > 1) GTEST_SKIP() << "runs on one rank";
  TrainingRunConfig config = run_with(0.25);
  TrainingRun unlimited(test::world(), config, {});
  unlimited.step();
  config.model.experts.capacity_factor = 0.1;  // each expert computes one token of a micro-batch
  TrainingRun limited(test::world(), config, {});
  limited.step();
  EXPECT_EQ(biases_of(limited), biases_of(unlimited));
  EXPECT_NE(biases_of(limited), Numbers(4, 0));
}

TEST(RouterBiases, AreNotRoundedTo16Bits) {
  if (test::world().size() > 1) GTEST_SKIP() << "runs on one rank";
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    TrainingRun run(test::world(), run_with(0.5, dtype), {});
    level_scores(run);
    // Equal in both types.
    std::ranges::copy(std::vector<float>{64, 64 - 0x1p-9F, 64 + 0x1p-9F, 64 + 0x1p-8F}, bias_of(run).data.as<float>());
    const Numbers before = biases_of(run);
    run.trainer.restore(run.trainer.state_attributes());
    level_scores(run);
    run.step();
    Numbers expected = before;
    for (std::size_t e = 0; e < 4; ++e) expected[e] += e < 2 ? 0.5 : -0.5;
    EXPECT_EQ(biases_of(run), expected) << name_of(dtype);
  }
}

TEST(RouterBiases, StayIfAnUpdateIsSkipped) {
  if (test::world().size() > 1) GTEST_SKIP() << "runs on one rank";
  TrainingRunConfig config = run_with(0.25);
  config.guards.check_for_nan = false;
  TrainingRun run(test::world(), config, {});
  run.step();
  const Numbers before = biases_of(run);
  EXPECT_NE(before, Numbers(4, 0));
  run.gpt.parameters().at("ln_f.weight").value.as<double>()[0] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(run.step().skipped);
  EXPECT_EQ(biases_of(run), before);
}

TEST(RouterBiases, AreNeitherDecayedNorCountedAmongZeros) {
  if (test::world().size() > 1) GTEST_SKIP() << "runs on one rank";
  for (const optim::OptimizerKind kind :
       {optim::OptimizerKind::adam, optim::OptimizerKind::sgd, optim::OptimizerKind::muon}) {
    TrainingRunConfig config = run_with(0);
    config.optimizer.kind = kind;
    config.optimizer.weight_decay = 0.5;
    config.optimizer.decays_all = true;
    const test::RunTolerance tolerance = test::tolerance(DType::fp64, test::Comparison::other_order);
    TrainingRunConfig without = config;
    without.model.experts.router_bias = false;
    TrainingRun run(test::world(), config, {}), other(test::world(), without, {});
    for (TrainingRun* each : {&run, &other}) each->trainer.observe({.params_norm = true, .num_zeros = true});
    for (int step = 0; step < 3; ++step) {
      const TrainRecord actual = run.step(), expected = other.step();
      EXPECT_EQ(actual.num_zeros, expected.num_zeros);
      EXPECT_NEAR(actual.lm_loss / expected.lm_loss, 1, tolerance.loss);
      EXPECT_NEAR(actual.grad_norm / expected.grad_norm, 1, tolerance.grad_norm);
      EXPECT_NEAR(*actual.params_norm / *expected.params_norm, 1, tolerance.loss);
    }
    EXPECT_EQ(biases_of(run), Numbers(4, 0));
    // A bias other than 0 keeps its bits, too.
    const TensorView bias = bias_of(run).data;
    for (int e = 0; e < 4; ++e) bias.as<double>()[e] = 0.1 * e;
    run.trainer.restore(run.trainer.state_attributes());
    run.step();
    EXPECT_EQ(biases_of(run), (Numbers{0, 0.1, 0.2, 0.1 * 3}));
  }
}

TEST(RouterBiases, OfAResumedRunHaveTheSameBits) {
  for (const Layout layout : {"", "zero1", "zero2"}) {
    TrainingRunConfig config = run_with(0.01, DType::bf16);
    config.batch = 8;
    config.steps = 4;
    TrainingRun run(test::world(), config, layout), resumed(test::world(), config, layout);
    for (int step = 0; step < 2; ++step) run.step();
    test::copy_state(run, resumed);
    resumed.trainer.restore(run.trainer.state_attributes());
    for (int step = 0; step < 2; ++step) {
      EXPECT_EQ(resumed.step().lm_loss, run.step().lm_loss);
      EXPECT_EQ(biases_of(resumed), biases_of(run));
    }
    run.trainer.check_replicas();
  }
}

TEST(RouterBiases, TakeTheMemoryThatIsPredicted) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    TrainingRunConfig config = run_with(0.01, dtype);
    config.batch = 8;
    test::activation_bytes(test::world(), config, {});
  }
}

}  // namespace
}  // namespace trireme::train
