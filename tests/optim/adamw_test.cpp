#include "src/optim/adamw.hpp"

#include <gtest/gtest.h>

#include "tests/optim/optimizer_rig.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme::optim {
namespace {

using namespace test;

class AdamWOptimizer : public testing::TestWithParam<DType> {
 protected:
  std::unique_ptr<Backend> backend_ = make_backend(BackendChoice::cpu, 1);
};
INSTANTIATE_TEST_SUITE_P(Types, AdamWOptimizer, testing::Values(DType::fp64, DType::fp32, DType::bf16, DType::fp16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(AdamWOptimizer, UpdatesEveryParameterAsAPlainLoopDoes) {
  Backend& b = *backend_;
  ParameterBuffer buffer(b, GetParam(), parameters());
  fill_values(b, buffer);
  AdamW adamw(b, buffer, 0.3, {0.8, 0.95, 1e-6});

  const std::size_t count = buffer.parameters().size();
  std::vector<std::vector<double>> w(count);
  std::vector<std::vector<double>> m(count);
  std::vector<std::vector<double>> v(count);
  for (std::size_t i = 0; i < count; ++i) {
    w[i] = values_of(b, buffer.parameters()[i].value);
    m[i].assign(w[i].size(), 0);
    v[i].assign(w[i].size(), 0);
  }
  for (int step = 1; step <= 4; ++step) {
    const double lr = 0.01 * step;
    const double scale = 1.0 / step;
    fill_gradients(b, buffer, static_cast<std::uint64_t>(step));
    for (std::size_t i = 0; i < count; ++i) {
      const Parameter& p = buffer.parameters()[i];
      const bool decays = p.name == "wte" || p.name == "fc.weight" || p.name == "proj.weight";
      const std::vector<double> gradient = values_of(b, p.gradient);
      for (std::size_t j = 0; j < gradient.size(); ++j) {
        const double g = gradient[j] * scale;
        m[i][j] = 0.8 * m[i][j] + 0.2 * g;
        v[i][j] = 0.95 * v[i][j] + 0.05 * g * g;
        const double mean = m[i][j] / (1 - std::pow(0.8, step));
        const double square = v[i][j] / (1 - std::pow(0.95, step));
        if (decays) w[i][j] -= lr * 0.3 * w[i][j];
        w[i][j] -= lr * mean / (std::sqrt(square) + 1e-6);
      }
    }
    adamw.step(lr, scale);
  }
  EXPECT_EQ(adamw.updates(), 4);
  const Tolerance allowed = tolerance(accumulation_type(GetParam()), Operation::sum);
  for (std::size_t i = 0; i < count; ++i) {
    const Parameter& p = buffer.parameters()[i];
    const std::vector<Optimizer::State> state = adamw.state(i);
    expect_close(values_of(b, state[0].data), w[i], allowed, state[0].kind + " of " + p.name);
    expect_close(values_of(b, state[1].data), m[i], allowed, state[1].kind + " of " + p.name);
    expect_close(values_of(b, state[2].data), v[i], allowed, state[2].kind + " of " + p.name);
    // The parameter is its master, rounded once.
    EXPECT_EQ(values_of(b, p.value), values_of(b, converted(b, state[0].data, GetParam()))) << p.name;
  }
}

TEST(AdamWByHand, TwoUpdatesOfOneWeight) {
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  Backend& b = *backend;
  ParameterBuffer buffer(b, DType::fp64,
                         {parameter("w", ParameterRole::matrix, {1}), parameter("b", ParameterRole::bias, {1})});
  for (const Parameter& p : buffer.parameters()) p.value.as<double>()[0] = 1;
  AdamW adamw(b, buffer, 0.01, {});
  const auto weight = [&](std::size_t i) { return buffer.parameters()[i].value.as<double>()[0]; };

  // m / c1 = g and v / c2 = g^2 in the first update, so the step is the learning rate but for epsilon.
  for (const Parameter& p : buffer.parameters()) p.gradient.as<double>()[0] = 0.5;
  adamw.step(0.1, 1);
  EXPECT_DOUBLE_EQ(weight(0), 1 - 0.001 - 0.1 * 0.5 / (0.5 + 1e-8));
  EXPECT_DOUBLE_EQ(weight(1), 1 - 0.1 * 0.5 / (0.5 + 1e-8));

  // m = 0.9 * 0.05 - 0.1 * 0.25 = 0.02, c1 = 0.19; v = 0.999 * 0.00025 + 0.001 * 0.0625 = 0.00031225, c2 = 0.001999.
  const double before = weight(1);
  for (const Parameter& p : buffer.parameters()) p.gradient.as<double>()[0] = -1;
  adamw.step(0.1, 0.25);
  EXPECT_DOUBLE_EQ(weight(1), before - 0.1 * (0.02 / 0.19) / (std::sqrt(0.00031225 / 0.001999) + 1e-8));
}

TEST(AdamWSettings, OutOfRangeAreRefused) {
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  ParameterBuffer buffer(*backend, DType::fp32, parameters());
  for (const AdamWOptions& options :
       {AdamWOptions{1, 0.999, 1e-8}, AdamWOptions{0.9, 1, 1e-8}, AdamWOptions{-0.1, 0.9, 1e-8},
        AdamWOptions{0.9, 0.999, 0}, AdamWOptions{0.9, 0.999, -1}}) {
    EXPECT_THROW(AdamW(*backend, buffer, 0, options), ConfigError);
  }
  EXPECT_THROW(AdamW(*backend, buffer, -0.1, {}), ConfigError);
}

}  // namespace
}  // namespace trireme::optim
