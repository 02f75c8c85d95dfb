#include "src/optim/adamw.hpp"

#include <gmock/gmock.h>

#include "tests/optim/optimizer_rig.hpp"

namespace trireme::optim {
namespace {

using namespace test;

class AdamWOptimizer : public OptimizerTest {};
INSTANTIATE_TEST_SUITE_P(Types, AdamWOptimizer, all_types, name_of_type);

TEST_P(AdamWOptimizer, UpdatesEveryParameterAsAPlainLoopDoes) {
  ParameterBuffer buffer(*backend_, GetParam(), parameters());
  fill_values(*backend_, buffer);
  AdamW adamw(*backend_, buffer, 0.3, {0.8, 0.95, 1e-6});
  ASSERT_EQ(adamw.state(0).size(), 3u);
  expect_updates_of(buffer, adamw, [](PlainStep& plain) {
    std::vector<double>&w = plain.states[0], &m = plain.states[1], &v = plain.states[2];
    for (std::size_t j = 0; j < w.size(); ++j) {
      const double g = plain.g[j];
      m[j] = 0.8 * m[j] + 0.2 * g;
      v[j] = 0.95 * v[j] + 0.05 * g * g;
      const double mean = m[j] / (1 - std::pow(0.8, plain.step)), square = v[j] / (1 - std::pow(0.95, plain.step));
      if (plain.decays) w[j] -= plain.lr * 0.3 * w[j];
      w[j] -= plain.lr * mean / (std::sqrt(square) + 1e-6);
    }
  });
}

// A plain loop in fp64 that rounds its moments to bf16 after every update.
TEST_P(AdamWOptimizer, KeepsMomentsInSixteenBits) {
  const AdamWOptions options{0.8, 0.95, 1e-6, DType::bf16, DType::bf16};
  ParameterBuffer buffer(*backend_, GetParam(), parameters());
  fill_values(*backend_, buffer);
  if (GetParam() == DType::fp64) {
    EXPECT_THROW(AdamW(*backend_, buffer, 0.3, options), ConfigError);
    return;
  }
  AdamW adamw(*backend_, buffer, 0.3, options);
  EXPECT_EQ(adamw.state(0)[1].data.dtype(), DType::bf16);
  EXPECT_EQ(adamw.state(0)[2].data.dtype(), DType::bf16);
  const auto rounded = [](double x) { return static_cast<float>(bf16(static_cast<float>(x))); };
  expect_updates_of(buffer, adamw, [&](PlainStep& plain) {
    std::vector<double>&w = plain.states[0], &m = plain.states[1], &v = plain.states[2];
    for (std::size_t j = 0; j < w.size(); ++j) {
      const double g = plain.g[j];
      const double mean = 0.8 * m[j] + 0.2 * g, square = 0.95 * v[j] + 0.05 * g * g;
      m[j] = rounded(mean);
      v[j] = rounded(square);
      if (plain.decays) w[j] -= plain.lr * 0.3 * w[j];
      w[j] -= plain.lr * mean / (1 - std::pow(0.8, plain.step)) /
              (std::sqrt(square / (1 - std::pow(0.95, plain.step))) + 1e-6);
    }
  });
}

TEST(AdamWByHand, TwoUpdatesOfOneWeight) {
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  Backend& b = *backend;
  ParameterBuffer buffer(
      b, DType::fp64,
      {whole_parameter("w", ParameterRole::matrix, {1}), whole_parameter("b", ParameterRole::bias, {1})});
  for (const Parameter& p : buffer.parameters()) p.value.as<double>()[0] = 1;
  AdamW adamw(b, buffer, 0.01, {});
  const auto weight = [&](std::size_t i) { return buffer.parameters()[i].value.as<double>()[0]; };

  // m / c1 = g and v / c2 = g^2 in the first update, so the step is the learning rate except for epsilon.
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

TEST(AdamWByHand, TokensMayHaveALearningRateOfTheirOwn) {
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  std::vector<Parameter> list = {whole_parameter("wte", ParameterRole::embedding, {1}),
                                 whole_parameter("wpe", ParameterRole::embedding, {1})};
  list[0].rows_are_tokens = true;
  ParameterBuffer buffer(*backend, DType::fp64, list);
  for (const Parameter& p : buffer.parameters()) p.value.as<double>()[0] = p.gradient.as<double>()[0] = 1;
  AdamW adamw(*backend, buffer, 0.5, {});
  Optimizer::Rates rates = 0.1;
  rates.of_tokens = 0.01;
  rates.weight_decay = 0.25;  // instead of the optimizer's
  adamw.step(rates, 1);
  EXPECT_DOUBLE_EQ(buffer.parameters()[0].value.as<double>()[0], 1 - 0.01 * 0.25 - 0.01 / (1 + 1e-8));
  EXPECT_DOUBLE_EQ(buffer.parameters()[1].value.as<double>()[0], 1 - 0.1 * 0.25 - 0.1 / (1 + 1e-8));
}

TEST(AdamWSettings, MomentsThatWouldVanishOrNeverDecayAreRefused) {
  EXPECT_NO_THROW(validate({0.9, 0.95, 1e-8, DType::bf16, DType::bf16}));
  EXPECT_NO_THROW(validate({0.9, 0.999, 1e-8, DType::bf16, DType::fp32}));
  EXPECT_NO_THROW(validate({0.9, 0.996, 1e-8, DType::fp32, DType::bf16}));
  EXPECT_THAT(
      [] {
        validate({0.9, 0.999, 1e-8, DType::fp32, DType::bf16});
      },
      testing::ThrowsMessage<ConfigError>(testing::HasSubstr("loses 0.001 of itself")));
  EXPECT_THROW(validate({0.999, 0.95, 1e-8, DType::bf16, DType::fp32}), ConfigError);
  EXPECT_THAT(
      [] {
        validate({0.9, 0.95, 1e-8, DType::fp32, DType::fp16});
      },
      testing::ThrowsMessage<ConfigError>(testing::HasSubstr("<exp_avg_sq_dtype> fp16")));
  EXPECT_THROW(validate({0.9, 0.95, 1e-8, DType::fp16, DType::fp32}), ConfigError);
  // The reason: every number of bf16 from 1 to 2 that loses 0.001 of itself is rounded back.
  for (float x = 1; x < 2; x += 0x1p-7f) {
    EXPECT_EQ(static_cast<float>(bf16(x * 0.999f)), x);
    EXPECT_LT(static_cast<float>(bf16(x * 0.996f)), x);
  }
}

}  // namespace
}  // namespace trireme::optim
