#include "src/optim/sgd.hpp"

#include <gtest/gtest.h>

#include "tests/optim/optimizer_rig.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme::optim {
namespace {

using namespace test;

class SgdOptimizer : public testing::TestWithParam<DType> {
 protected:
  std::unique_ptr<Backend> backend_ = make_backend(BackendChoice::cpu, 1);
};
INSTANTIATE_TEST_SUITE_P(Types, SgdOptimizer, testing::Values(DType::fp64, DType::fp32, DType::bf16, DType::fp16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(SgdOptimizer, UpdatesEveryParameterAsAPlainLoopDoes) {
  Backend& b = *backend_;
  ParameterBuffer buffer(b, GetParam(), parameters());
  fill_values(b, buffer);
  Sgd sgd(b, buffer, 0.3, {.momentum = 0.8});

  const std::size_t count = buffer.parameters().size();
  std::vector<std::vector<double>> w(count);
  std::vector<std::vector<double>> m(count);
  for (std::size_t i = 0; i < count; ++i) w[i] = values_of(b, buffer.parameters()[i].value);
  for (int step = 1; step <= 4; ++step) {
    const double lr = 0.01 * step;
    const double scale = 1.0 / step;
    fill_gradients(b, buffer, static_cast<std::uint64_t>(step));
    for (std::size_t i = 0; i < count; ++i) {
      const Parameter& p = buffer.parameters()[i];
      const bool decays = p.name == "wte" || p.name == "fc.weight" || p.name == "proj.weight";
      std::vector<double> g = values_of(b, p.gradient);
      for (std::size_t j = 0; j < g.size(); ++j) g[j] = scale * g[j] + (decays ? 0.3 * w[i][j] : 0);
      if (step == 1) m[i] = g;
      for (std::size_t j = 0; j < g.size(); ++j) {
        if (step > 1) m[i][j] = 0.8 * m[i][j] + g[j];
        w[i][j] -= lr * m[i][j];
      }
    }
    sgd.step(lr, scale);
  }
  EXPECT_EQ(sgd.updates(), 4);
  const Tolerance allowed = tolerance(accumulation_type(GetParam()), Operation::sum);
  for (std::size_t i = 0; i < count; ++i) {
    const Parameter& p = buffer.parameters()[i];
    const std::vector<Optimizer::State> state = sgd.state(i);
    ASSERT_EQ(state.size(), 2u);
    expect_close(values_of(b, state[0].data), w[i], allowed, state[0].kind + " of " + p.name);
    expect_close(values_of(b, state[1].data), m[i], allowed, state[1].kind + " of " + p.name);
    // The parameter is its master, rounded once.
    EXPECT_EQ(values_of(b, p.value), values_of(b, converted(b, state[0].data, GetParam()))) << p.name;
  }
}

TEST(SgdSettings, OutOfRangeAreRefused) {
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  ParameterBuffer buffer(*backend, DType::fp32, parameters());
  EXPECT_NO_THROW(Sgd(*backend, buffer, 0, {.momentum = 0}));
  EXPECT_THROW(Sgd(*backend, buffer, 0, {.momentum = 1}), ConfigError);
  EXPECT_THROW(Sgd(*backend, buffer, 0, {.momentum = -0.1}), ConfigError);
  EXPECT_THROW(Sgd(*backend, buffer, -0.1, {}), ConfigError);
}

}  // namespace
}  // namespace trireme::optim
