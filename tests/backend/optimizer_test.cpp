#include "src/backend/kernels/optimizer.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "tests/support/random_tensor.hpp"
#include "tests/support/test_backend.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme {
namespace {

using namespace test;

constexpr UpdateRates rates{.learning_rate = 0.01, .weight_decay = 0.1};
constexpr AdamWStep adamw_step{
    .rates = {rates}, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .update = 3, .gradient_scale = 0.25};
constexpr SgdStep sgd_step{.rates = {rates}, .momentum = 0.9, .gradient_scale = 0.25};

/// The training type; master weights, gradients and moments are in its accumulation type.
class OptimizerKernel : public KernelTest {
 protected:
  struct State {
    State(Backend& b, DType training, std::int64_t n)
        : gradient(random_tensor(b, accumulation_type(training), {n}, 1)),
          w(random_tensor(b, accumulation_type(training), {n}, 2)),
          m(random_tensor(b, accumulation_type(training), {n}, 3)),
          v(random_tensor(b, accumulation_type(training), {n}, 4, 0, 1)),
          rounded(poisoned_tensor(b, training, {n})) {}
    Tensor gradient, w, m, v, rounded;
  };
  /// Expects new weights and first moments, and the weights rounded to the training type.
  void expect_update(const State& state, const std::vector<double>& w, const std::vector<double>& m) {
    const Tolerance allowed = tolerance(accumulation(), Operation::elementwise);
    const std::string what = fmt::format("{} elements", w.size());
    expect_close(values_of(b(), state.m), m, allowed, "m, " + what);
    expect_close(values_of(b(), state.w), w, allowed, "w, " + what);
    EXPECT_EQ(values_of(b(), state.rounded), values_of(b(), converted(b(), state.w, dtype()))) << what;
  }
};
INSTANTIATE_TEST_SUITE_P(Types, OptimizerKernel, testing::ValuesIn(test::kernel_types()), name_of_type);

TEST_P(OptimizerKernel, AdamWMatchesTheFormula) {
  for (const std::int64_t n : {0, 1, 31, 33, 1025, 40'000}) {
    const State state(b(), dtype(), n);
    std::vector<double> g = values_of(b(), state.gradient), w = values_of(b(), state.w), m = values_of(b(), state.m),
                        v = values_of(b(), state.v);
    for (std::int64_t i = 0; i < n; ++i) {
      g[i] *= adamw_step.gradient_scale;
      m[i] = adamw_step.beta1 * m[i] + (1 - adamw_step.beta1) * g[i];
      v[i] = adamw_step.beta2 * v[i] + (1 - adamw_step.beta2) * g[i] * g[i];
      const double mean = m[i] / (1 - std::pow(adamw_step.beta1, 3)),
                   square = v[i] / (1 - std::pow(adamw_step.beta2, 3));
      w[i] = w[i] * (1 - rates.learning_rate * rates.weight_decay) -
             rates.learning_rate * mean / (std::sqrt(square) + adamw_step.epsilon);
    }
    b().optimizer().adamw(stream(), adamw_step, {}, state.gradient, state.w, state.m, state.v, state.rounded);
    expect_update(state, w, m);
    expect_close(values_of(b(), state.v), v, tolerance(accumulation(), Operation::elementwise), "v");
  }
}

// The numbers of a step with moments of 16 bits are those of a step with the same moments in fp32.
TEST_P(OptimizerKernel, AdamWRoundsMomentsOfSixteenBitsAndNothingElse) {
  if (accumulation() != DType::fp32) GTEST_SKIP() << "moments of fp64 runs are fp64";
  for (const std::int64_t n : {0, 1, 31, 33, 1025, 40'000}) {
    for (const auto& [first, second] :
         {std::pair{DType::bf16, DType::bf16}, {DType::bf16, DType::fp32}, {DType::fp32, DType::bf16}}) {
      const State start(b(), dtype(), n), state(b(), dtype(), n), wide(b(), dtype(), n);
      const Tensor m = converted(b(), start.m, first), v = converted(b(), start.v, second);
      const Tensor wide_m = converted(b(), m, DType::fp32), wide_v = converted(b(), v, DType::fp32);
      for (int update = 0; update < 2; ++update) {
        AdamWStep step = adamw_step;
        step.update += update;
        b().optimizer().adamw(stream(), step, {}, state.gradient, state.w, m, v, state.rounded);
        b().optimizer().adamw(stream(), step, {}, wide.gradient, wide.w, wide_m, wide_v, wide.rounded);
        for (const auto& [narrow, full] : {std::pair{&m, &wide_m}, {&v, &wide_v}}) {
          const Tensor rounded = converted(b(), *full, narrow->view().dtype());
          EXPECT_EQ(bytes_of(b(), *narrow), bytes_of(b(), rounded)) << n << " elements";
          b().elementwise().convert(stream(), rounded, *full);
        }
        EXPECT_EQ(bytes_of(b(), state.w), bytes_of(b(), wide.w)) << n << " elements";
        EXPECT_EQ(bytes_of(b(), state.rounded), bytes_of(b(), wide.rounded)) << n << " elements";
      }
    }
  }
}

TEST_P(OptimizerKernel, SgdMatchesTheFormula) {
  for (const std::int64_t n : {0, 1, 31, 33, 1025, 40'000}) {
    const State state(b(), dtype(), n);
    const std::vector<double> g = values_of(b(), state.gradient);
    std::vector<double> w = values_of(b(), state.w), m = values_of(b(), state.m);
    for (std::int64_t i = 0; i < n; ++i) {
      m[i] = sgd_step.momentum * m[i] + sgd_step.gradient_scale * g[i] + rates.weight_decay * w[i];
      w[i] -= rates.learning_rate * m[i];
    }
    b().optimizer().sgd(stream(), sgd_step, {}, state.gradient, state.w, state.m, state.rounded);
    expect_update(state, w, m);
  }
}

TEST_P(OptimizerKernel, BlendMatchesTheFormula) {
  for (const std::int64_t n : {0, 1, 31, 33, 1025, 40'000}) {
    for (const DType type : {accumulation(), DType::bf16}) {
      if (type == DType::bf16 && accumulation() != DType::fp32) continue;
      const State state(b(), dtype(), n);
      const Tensor x = converted(b(), state.m, type);
      const std::vector<double> added = values_of(b(), x), m = values_of(b(), state.m);
      std::vector<double> w = values_of(b(), state.w);
      for (std::int64_t i = 0; i < n; ++i) w[i] = 0.75 * w[i] - 0.3 * added[i];
      b().optimizer().blend(stream(), -0.3, x, 0.75, state.w, state.rounded);
      expect_update(state, w, m);
      b().optimizer().blend(stream(), 0, x, 1, state.w, {});
      expect_update(state, w, m);
    }
  }
  const State state(b(), dtype(), 8);
  EXPECT_THROW(b().optimizer().blend(stream(), 1, state.m.view().flat(0, 7), 1, state.w, {}), ShapeError);
}

/// Ranges in the order of the arrays, whose moments lie in another; the rates in the order of the table.
TEST_P(OptimizerKernel, ARangeHasTheBitsOfACallForItAlone) {
  struct Range {
    std::int64_t begin, moment, count;
    std::size_t rates;
  };
  constexpr Range all[] = {{0, 2600, 8, 1}, {16, 0, 2600, 3}, {2616, 2616, 24, 0}, {2648, 2648, 2048, 2}};
  constexpr std::int64_t n = 4700;
  constexpr UpdateRateTable table{{{0.01, 0.1}, {0.02, 0}, {0.03, 0.2}, {0.04, 0.3}}};
  std::vector<std::int64_t> rows;
  UpdateRanges ranges;
  for (const Range& range : all) {
    rows.insert(rows.end(), {ranges.elements, range.begin, range.moment, static_cast<std::int64_t>(range.rates)});
    ranges.elements += range.count;
  }
  const Tensor on_device = upload(b(), {4, UpdateRanges::columns}, rows);
  ranges.table = on_device;
  const State together(b(), dtype(), n), apart(b(), dtype(), n);
  const auto bits = [&](const State& state) {
    std::vector<std::vector<std::byte>> all_bits;
    for (const Tensor* tensor : {&state.w, &state.m, &state.v, &state.rounded})
      all_bits.push_back(bytes_of(b(), *tensor));
    return all_bits;
  };
  const auto update = [&](const State& s, const UpdateRateTable& rates, const UpdateRanges& updated, const Range& in) {
    AdamWStep adamw = adamw_step;
    SgdStep sgd = sgd_step;
    adamw.rates = sgd.rates = rates;
    const auto own = [&](const Tensor& tensor) { return tensor.view().flat(in.begin, in.count); };
    const TensorView m = s.m.view().flat(in.moment, in.count), v = s.v.view().flat(in.moment, in.count);
    b().optimizer().adamw(stream(), adamw, updated, own(s.gradient), own(s.w), m, v, own(s.rounded));
    b().optimizer().sgd(stream(), sgd, updated, own(s.gradient), own(s.w), m, own(s.rounded));
  };
  for (const Range& range : all) update(apart, {table[range.rates]}, {}, range);
  const std::vector<std::vector<std::byte>> before = bits(together);
  update(together, table, ranges, {0, 0, n, 0});
  EXPECT_EQ(bits(together), bits(apart));
  EXPECT_NE(bits(together), before);
}

// The factor replaces the number; as NaN it stops the update.
TEST_P(OptimizerKernel, TakesItsFactorFromMemory) {
  const Tensor factor = upload<double>(b(), {1}, {0.25}), none = upload<double>(b(), {1}, {std::nan("")});
  for (const std::int64_t n : {1, 33, 1025}) {
    const State by_number(b(), dtype(), n), by_factor(b(), dtype(), n);
    const auto bits = [&](const State& s) {
      return std::array{bytes_of(b(), s.w), bytes_of(b(), s.m), bytes_of(b(), s.v), bytes_of(b(), s.rounded)};
    };
    const auto update = [&](const State& s, double number, const double* of_memory) {
      AdamWStep adamw = adamw_step;
      SgdStep sgd = sgd_step;
      adamw.gradient_scale = sgd.gradient_scale = number;
      adamw.factor = sgd.factor = of_memory;
      b().optimizer().adamw(stream(), adamw, {}, s.gradient, s.w, s.m, s.v, s.rounded);
      b().optimizer().sgd(stream(), sgd, {}, s.gradient, s.w, s.m, s.rounded);
    };
    const auto before = bits(by_factor);
    update(by_factor, 7, none.view().as<double>());
    EXPECT_EQ(bits(by_factor), before);
    update(by_number, 0.25, nullptr);
    update(by_factor, 7, factor.view().as<double>());
    EXPECT_EQ(bits(by_factor), bits(by_number));
  }
}

TEST(ClipCoefficient, ScalesTheNormDownToTheLimitAndNeverUp) {
  EXPECT_EQ(clip_coefficient(4, 1), 1 / (4 + 1e-6));
  EXPECT_EQ(clip_coefficient(0.5, 1), 1);
  EXPECT_EQ(clip_coefficient(0, 1), 1);
  EXPECT_EQ(clip_coefficient(1e9, 0), 1);  // 0: no clipping
}

/// Norm and factor of a step with these sums of losses and of gradients, after one with the factor `before`.
std::pair<double, double> decided(const UpdateRule& rule, const std::vector<double>& losses,
                                  const std::vector<double>& of_groups, double before = 0) {
  const auto backend = test::make_backend(1);
  Backend& b = *backend;
  const Tensor norm = upload<double>(b, {1}, {-1}), factor = upload<double>(b, {1}, {before});
  b.optimizer().decide(b.compute_stream(), rule, upload(b, {std::ssize(losses)}, losses),
                       upload(b, {std::ssize(of_groups)}, of_groups), norm, factor);
  return {values_of(b, norm)[0], values_of(b, factor)[0]};
}

TEST(UpdateDecision, LimitsTheNormOfAllGroupsAndRemovesTheLossScale) {
  using Pair = std::pair<double, double>;
  EXPECT_EQ(decided({}, {1, 2, 3}, {9, 16}), Pair(5, 1));
  EXPECT_EQ(decided({.loss_scale = 4, .norm_limit = 2}, {1}, {9, 16}), Pair(1.25, 0.25));
  EXPECT_EQ(decided({.loss_scale = 2, .norm_limit = 1}, {1}, {64}), Pair(4, 1 / (4 + 1e-6) / 2));
  EXPECT_EQ(decided({.norm_power = 0}, {1}, {3, 7, 5}), Pair(7, 1));
  EXPECT_NEAR(decided({.norm_power = 3}, {1}, {8, 19}).first, 3, 1e-15);
}

TEST(UpdateDecision, ForbidsTheUpdateOfAStepThatIsNotFiniteAndOfThoseAfterIt) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto forbidden = [](const UpdateRule& rule, const std::vector<double>& losses,
                            const std::vector<double>& of_groups,
                            double before = 0) { return std::isnan(decided(rule, losses, of_groups, before).second); };
  for (const int power : {0, 2, 3}) {
    const UpdateRule rule{.norm_limit = 1, .norm_power = power};
    EXPECT_FALSE(forbidden(rule, {1, 0, 2}, {4, 0}));
    EXPECT_TRUE(forbidden(rule, {1, 0, 2}, {4, infinity}));
    EXPECT_TRUE(forbidden(rule, {1, 0, 2}, {std::nan(""), 4}));
    EXPECT_TRUE(forbidden(rule, {1, -infinity, infinity}, {4, 1}));
    EXPECT_TRUE(forbidden(rule, {1, infinity, 2}, {4, 1}));
    EXPECT_TRUE(forbidden(rule, {1, 0, 2}, {4, 0}, std::nan("")));
  }
}

TEST_P(OptimizerKernel, ClearsRangesAlone) {
  const Tensor gradient = make_tensor(b(), dtype(), {2100}, std::vector<double>(2100, 3));
  const Tensor table = upload<std::int64_t>(b(), {2, UpdateRanges::columns}, {0, 8, 0, 0, 16, 40, 0, 0});
  b().optimizer().clear(stream(), {table, 16 + 2048}, gradient);
  const std::vector<double> values = values_of(b(), gradient);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(values[i], (i >= 8 && i < 24) || (i >= 40 && i < 40 + 2048) ? 0 : 3) << i;
  }
}

TEST_P(OptimizerKernel, WorksWithoutARoundedCopyAndWithAnyNumberOfThreads) {
  std::vector<std::byte> first;
  for (const int threads : {1, 2, 3}) {
    const auto backend = test::make_backend(threads);
    Backend& b = *backend;
    const State state(b, dtype(), 30'000);
    b.optimizer().adamw(b.compute_stream(), adamw_step, {}, state.gradient, state.w, state.m, state.v, {});
    b.optimizer().adamw(b.compute_stream(), adamw_step, {}, state.gradient, state.w, state.m, state.v, {});
    b.optimizer().sgd(b.compute_stream(), sgd_step, {}, state.gradient, state.w, state.m, {});
    const std::vector<std::byte> bits = bytes_of(b, state.w);
    if (first.empty()) first = bits;
    EXPECT_EQ(bits, first) << threads << " threads";
  }
}

TEST(AdamWFirstStep, MovesByTheLearningRateAgainstTheSignOfTheGradient) {
  const auto backend = test::make_backend(1);
  Backend& b = *backend;
  const Tensor g = make_tensor(b, test::exact_type(), {3}, {1e-3, -5, 0}),
               w = make_tensor(b, test::exact_type(), {3}, {1, 1, 1});
  const Tensor m = make_tensor(b, test::exact_type(), {3}, {0, 0, 0}),
               v = make_tensor(b, test::exact_type(), {3}, {0, 0, 0});
  b.optimizer().adamw(b.compute_stream(), {.rates = {{{0.5}}}, .epsilon = 0}, {}, g.view().flat(0, 2),
                      w.view().flat(0, 2), m.view().flat(0, 2), v.view().flat(0, 2), {});
  expect_close(values_of(b, w), std::vector<double>{0.5, 1.5, 1}, tolerance(test::exact_type(), Operation::elementwise),
               "w");
}

TEST(SgdByHand, TwoStepsOfThreeWeights) {
  const auto backend = test::make_backend(1);
  Backend& b = *backend;
  const Tensor g = make_tensor(b, test::exact_type(), {3}, {4, -2, 0}),
               w = make_tensor(b, test::exact_type(), {3}, {1, 2, 0});
  const Tensor m = make_tensor(b, test::exact_type(), {3}, {0, 0, 0});
  const SgdStep step{.rates = {{{0.5, 0.25}}}, .momentum = 0.5, .gradient_scale = 0.125};
  // The first step's momentum is the gradient: 0.125 g + 0.25 w.
  b.optimizer().sgd(b.compute_stream(), step, {}, g, w, m, {});
  EXPECT_EQ(values_of(b, m), (std::vector<double>{0.75, 0.25, 0}));
  EXPECT_EQ(values_of(b, w), (std::vector<double>{0.625, 1.875, 0}));
  // 0.5 x 0.75 + 0.5 + 0.15625, 0.5 x 0.25 - 0.25 + 0.46875
  b.optimizer().sgd(b.compute_stream(), step, {}, g, w, m, {});
  EXPECT_EQ(values_of(b, m), (std::vector<double>{1.03125, 0.34375, 0}));
  EXPECT_EQ(values_of(b, w), (std::vector<double>{0.109375, 1.703125, 0}));
}

}  // namespace
}  // namespace trireme
