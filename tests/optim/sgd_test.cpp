#include "src/optim/sgd.hpp"

#include <gtest/gtest.h>

#include "tests/optim/optimizer_rig.hpp"

namespace trireme::optim {
namespace {

using namespace test;

class SgdOptimizer : public OptimizerTest {};
INSTANTIATE_TEST_SUITE_P(Types, SgdOptimizer, all_types, name_of_type);

/// SGD with a weight decay of 0.3 and a momentum of 0.8.
void plain_sgd(PlainStep& plain) {
  std::vector<double>&w = plain.states[0], &m = plain.states[1];
  for (std::size_t j = 0; j < w.size(); ++j) {
    const double g = plain.g[j] + (plain.decays ? 0.3 * w[j] : 0);
    m[j] = plain.step == 1 ? g : 0.8 * m[j] + g;
    w[j] -= plain.lr * m[j];
  }
}

TEST_P(SgdOptimizer, UpdatesEveryParameterAsAPlainLoopDoes) {
  ParameterBuffer buffer(*backend_, GetParam(), parameters());
  fill_values(*backend_, buffer);
  Sgd sgd(*backend_, buffer, 0.3, {.momentum = 0.8});
  ASSERT_EQ(sgd.state(0).size(), 2u);
  expect_updates_of(buffer, sgd, plain_sgd);
}

TEST_P(SgdOptimizer, DecaysBiasesAndNormsOnRequest) {
  ParameterBuffer buffer(*backend_, GetParam(), parameters());
  fill_values(*backend_, buffer);
  Sgd sgd(*backend_, buffer, 0.3, {.momentum = 0.8});
  expect_updates_of(buffer, sgd, plain_sgd, /*decays_all=*/true);
}

TEST(SgdSettings, OutOfRangeAreRefused) {
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  ParameterBuffer buffer(*backend, DType::fp32, parameters());
  EXPECT_THROW(Sgd(*backend, buffer, 0, {.momentum = 1}), ConfigError);
  EXPECT_THROW(Sgd(*backend, buffer, -0.1, {}), ConfigError);
}

}  // namespace
}  // namespace trireme::optim
