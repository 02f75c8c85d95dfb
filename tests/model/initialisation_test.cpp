#include "src/model/initialisation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/parallel/data/parameter_buffer.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/support/whole_parameter.hpp"

namespace trireme::model {
namespace {

using parallel::Parameter;
using parallel::ParameterBuffer;
using parallel::ParameterRole;

constexpr Initialisation normal{InitMethod::normal, 1234, 12, 1, 0.02};
constexpr Initialisation hashed{InitMethod::hashed_uniform, 1234, 12, 1, 0.02};

/// Returns the values that `initialise` writes to one parameter.
std::vector<double> initialised(const Parameter& parameter, DType dtype, const Initialisation& options) {
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  const ParameterBuffer buffer(*backend, dtype, {parameter});
  initialise(*backend, buffer.parameters(), options);
  return test::values_of(*backend, buffer.parameters()[0].value);
}

TEST(Initialisation, DoesNotDependOnTheThreads) {
  Parameter shard = test::whole_parameter("h.0.mlp.fc.weight", ParameterRole::matrix, {600, 101});
  shard.box.offset = {7, 3};
  shard.box.extent = {501, 97};
  shard.storage = {501, 97};
  Initialisation threaded = normal;
  threaded.threads = 3;
  EXPECT_EQ(initialised(shard, DType::fp32, threaded), initialised(shard, DType::fp32, normal));
}

TEST(Initialisation, OfAdaptersIsUniformForTheInputsAndZeroForTheOutputs) {
  const Parameter a = test::whole_parameter("h.0.mlp.fc.lora_a.weight", ParameterRole::adapter_inputs, {50, 100});
  double sum = 0, squares = 0, largest = 0;
  for (const double value : initialised(a, DType::fp64, normal)) {
    sum += value;
    squares += value * value;
    largest = std::max(largest, std::abs(value));
  }
  // On (-0.1, 0.1): 5000 numbers of variance 0.01 / 3.
  EXPECT_LT(largest, 0.1);
  EXPECT_GT(largest, 0.0999);
  EXPECT_NEAR(sum / 5000, 0, 4 * 0.1 / std::sqrt(3.0 * 5000));
  EXPECT_NEAR(squares / 5000, 0.01 / 3, 2e-4);
  const Parameter b = test::whole_parameter("h.0.mlp.fc.lora_b.weight", ParameterRole::adapter_outputs, {100, 50});
  for (const double value : initialised(b, DType::fp64, normal)) EXPECT_EQ(value, 0);
}

TEST(Initialisation, ScaleMultipliesTheMatricesOfTheLayersOnly) {
  for (Initialisation options : {normal, hashed}) {
    Initialisation scaled = options;
    scaled.scale = 16;
    const auto ratio = [&](const char* name, ParameterRole role) {
      return initial_value(name, role, 7, scaled) / initial_value(name, role, 7, options);
    };
    EXPECT_EQ(ratio("h.0.mlp.fc.weight", ParameterRole::matrix), 16);
    EXPECT_EQ(ratio("h.0.mlp.proj.weight", ParameterRole::residual_matrix), 16);
    EXPECT_EQ(ratio("wte", ParameterRole::embedding), 1);
    EXPECT_EQ(ratio("h.0.ln_1.weight", ParameterRole::norm_weight), 1);
    EXPECT_EQ(initial_value("h.0.mlp.fc.bias", ParameterRole::bias, 7, scaled),
              initial_value("h.0.mlp.fc.bias", ParameterRole::bias, 7, options));
  }
}

TEST(Initialisation, WithoutScalingDrawsResidualMatricesLikeOthers) {
  for (Initialisation options : {normal, hashed}) {
    options.scales_residual = false;
    EXPECT_EQ(initial_value("x", ParameterRole::residual_matrix, 3, options),
              initial_value("x", ParameterRole::matrix, 3, options));
  }
}

// Computed independently from the same definition (Philox in integers, AS 241 of another library).
TEST(Normal, MakesTheFrozenValues) {
  const auto value = [](const char* name, std::int64_t i) {
    return initial_value(name, ParameterRole::matrix, i, normal);
  };
  EXPECT_DOUBLE_EQ(value("wte", 0), 0.00032251857292036007);
  EXPECT_DOUBLE_EQ(value("wte", 1), -0.040858854889504366);
  EXPECT_DOUBLE_EQ(value("wte", 2), -0.027332699757503857);
  EXPECT_DOUBLE_EQ(value("wte", 3), -0.02412938060960237);
  EXPECT_DOUBLE_EQ(value("wte", 1000003), 0.00964871652915377);
  EXPECT_DOUBLE_EQ(value("wte", (std::int64_t{1} << 33) + 1), 0.014097886396899503);
  EXPECT_DOUBLE_EQ(value("h.0.mlp.fc.weight", 0), -0.005053050518919937);
  EXPECT_DOUBLE_EQ(value("h.0.mlp.fc.weight", 1), 0.020340077523716523);
  Initialisation other_seed = normal;
  other_seed.seed = 1235;
  EXPECT_DOUBLE_EQ(initial_value("wte", ParameterRole::embedding, 0, other_seed), -0.032707844886247874);
}

TEST(Normal, BiasesAreZeroNormsOneAndResidualMatricesSmaller) {
  EXPECT_EQ(initial_value("h.0.mlp.fc.bias", ParameterRole::bias, 3, normal), 0);
  EXPECT_EQ(initial_value("ln_f.bias", ParameterRole::norm_bias, 3, normal), 0);
  EXPECT_EQ(initial_value("ln_f.weight", ParameterRole::norm_weight, 3, normal), 1);
  EXPECT_EQ(initial_value("ln_f.weight", ParameterRole::centred_norm_weight, 3, normal), 0);
  EXPECT_DOUBLE_EQ(initial_value("x", ParameterRole::residual_matrix, 3, normal),
                   initial_value("x", ParameterRole::matrix, 3, normal) / std::sqrt(24.0));
}

TEST(Normal, HasTheMomentsAndTailsOfTheNormalDistribution) {
  constexpr std::int64_t n = 1'000'000;
  Initialisation unit = normal;
  unit.std = 1;
  const std::vector<double> x =
      initialised(test::whole_parameter("wte", ParameterRole::embedding, {1000, 1000}), DType::fp64, unit);
  double moments[5] = {};
  double beyond[5] = {};
  double neighbours = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double value = x[static_cast<std::size_t>(i)];
    for (int k = 1; k <= 4; ++k) {
      moments[k] += std::pow(value, k) / n;
      beyond[k] += std::abs(value) > k ? 1 : 0;
    }
    if (i > 0) neighbours += value * x[static_cast<std::size_t>(i - 1)] / n;
  }
  // Five standard errors: sqrt(var(x^k) / n) for a mean of x^k, sqrt(n p) for a count.
  const double error = 5 / std::sqrt(static_cast<double>(n));
  EXPECT_NEAR(moments[1], 0, error);
  EXPECT_NEAR(moments[2], 1, error * std::sqrt(2.0));
  EXPECT_NEAR(moments[3], 0, error * std::sqrt(15.0));
  EXPECT_NEAR(moments[4], 3, error * std::sqrt(96.0));
  EXPECT_NEAR(neighbours, 0, error);
  const double tail[5] = {1, 0.31731050786291410, 0.04550026389635842, 0.0026997960632601866, 6.334248366623996e-5};
  for (int k = 1; k <= 4; ++k) {
    EXPECT_NEAR(beyond[k], n * tail[k], 5 * std::sqrt(n * tail[k])) << "beyond " << k << " standard deviations";
  }
}

TEST(Normal, TensorsAndSeedsAreIndependent) {
  constexpr int n = 100'000;
  Initialisation unit = normal;
  unit.std = 1;
  Initialisation next = unit;
  next.seed += 1;
  double by_name = 0;
  double by_seed = 0;
  for (int i = 0; i < n; ++i) {
    const double x = initial_value("h.0.mlp.fc.weight", ParameterRole::matrix, i, unit);
    by_name += x * initial_value("h.1.mlp.fc.weight", ParameterRole::matrix, i, unit) / n;
    by_seed += x * initial_value("h.0.mlp.fc.weight", ParameterRole::matrix, i, next) / n;
  }
  EXPECT_NEAR(by_name, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(by_seed, 0, 5 / std::sqrt(n));
}

TEST(NormalQuantile, MatchesThePublishedCheckValuesAndIsOdd) {
  EXPECT_DOUBLE_EQ(normal_quantile(0.25), -0.6744897501960817);
  EXPECT_DOUBLE_EQ(normal_quantile(0.001), -3.090232306167814);
  EXPECT_DOUBLE_EQ(normal_quantile(1e-20), -9.262340089798408);
  EXPECT_DOUBLE_EQ(normal_quantile(0.975), 1.9599639845400545);
  EXPECT_EQ(normal_quantile(0.5), 0);
  for (const double p : {0.0625, 0.25, 0.001953125}) EXPECT_EQ(normal_quantile(1 - p), -normal_quantile(p));
}

TEST(Initialisation, AnyCutIntoBoxesGivesTheSameElements) {
  const Shape shape{3, 4, 5, 6};
  for (const Initialisation& options : {normal, hashed}) {
    for (const DType dtype : {DType::fp64, DType::bf16}) {
      const std::vector<double> reference =
          initialised(test::whole_parameter("t", ParameterRole::matrix, shape), dtype, options);
      for (std::int64_t i = 0; dtype == DType::fp64 && i < shape.numel(); ++i) {
        EXPECT_EQ(reference[static_cast<std::size_t>(i)], initial_value("t", ParameterRole::matrix, i, options));
      }
      for (int dimension = 0; dimension < 4; ++dimension) {
        for (std::int64_t begin = 0; begin < shape[dimension]; ++begin) {
          for (std::int64_t end = begin + 1; end <= shape[dimension]; ++end) {
            Parameter shard = test::whole_parameter("t", ParameterRole::matrix, shape);
            shard.box.offset[dimension] = begin;
            shard.box.extent[dimension] = end - begin;
            shard.storage = shard.box.extent;
            const std::vector<double> values = initialised(shard, dtype, options);
            std::size_t next = 0;
            for (std::int64_t i = 0; i < shape.numel(); ++i) {
              std::int64_t stride = 1;
              for (int d = dimension + 1; d < 4; ++d) stride *= shape[d];
              const std::int64_t at = i / stride % shape[dimension];
              if (at < begin || at >= end) continue;
              ASSERT_EQ(values[next++], reference[static_cast<std::size_t>(i)]);
            }
            ASSERT_EQ(next, values.size());
          }
        }
      }
    }
  }
}

TEST(Initialisation, LeavesPaddingZeroAndAnEmptyBoxAlone) {
  Parameter padded = test::whole_parameter("wte", ParameterRole::embedding, {5, 3});
  padded.box = {{3, 0}, {2, 3}};
  padded.storage = {4, 3};
  const std::vector<double> values = initialised(padded, DType::fp32, normal);
  for (std::int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(values[static_cast<std::size_t>(i)],
              static_cast<float>(initial_value("wte", ParameterRole::embedding, 9 + i, normal)));
  }
  for (std::size_t i = 6; i < 12; ++i) EXPECT_EQ(values[i], 0);

  padded.box = {{5, 0}, {0, 3}};
  EXPECT_EQ(initialised(padded, DType::fp32, normal), std::vector<double>(12, 0));
}

}  // namespace
}  // namespace trireme::model
