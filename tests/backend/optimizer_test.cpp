#include "src/backend/kernels/optimizer.hpp"

#include <gtest/gtest.h>

#include "tests/support/random_tensor.hpp"
#include "tests/support/test_backend.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme {
namespace {

using namespace test;

constexpr DType dtypes[] = {DType::fp64, DType::fp32, DType::bf16, DType::fp16};
constexpr AdamWStep step{.learning_rate = 0.01,
                         .beta1 = 0.9,
                         .beta2 = 0.99,
                         .epsilon = 1e-8,
                         .weight_decay = 0.1,
                         .update = 3,
                         .gradient_scale = 0.25};

/// The training type; master weights, gradients and moments are in its accumulation type.
class AdamW : public testing::TestWithParam<DType> {
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
  DType dtype() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Types, AdamW, testing::ValuesIn(dtypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(AdamW, MatchesTheFormula) {
  const auto backend = test::make_backend(2);
  Backend& b = *backend;
  const DType accumulation = accumulation_type(dtype());
  for (const std::int64_t n : {0, 1, 31, 33, 1025, 40'000}) {
    const State state(b, dtype(), n);
    std::vector<double> g = values_of(b, state.gradient), w = values_of(b, state.w), m = values_of(b, state.m),
                        v = values_of(b, state.v);
    for (std::int64_t i = 0; i < n; ++i) {
      g[i] *= step.gradient_scale;
      m[i] = step.beta1 * m[i] + (1 - step.beta1) * g[i];
      v[i] = step.beta2 * v[i] + (1 - step.beta2) * g[i] * g[i];
      const double mean = m[i] / (1 - std::pow(step.beta1, 3)), square = v[i] / (1 - std::pow(step.beta2, 3));
      w[i] = w[i] * (1 - step.learning_rate * step.weight_decay) -
             step.learning_rate * mean / (std::sqrt(square) + step.epsilon);
    }
    b.optimizer().adamw(b.compute_stream(), step, state.gradient, state.w, state.m, state.v, state.rounded);
    const Tolerance allowed = tolerance(accumulation, Operation::elementwise);
    const std::string what = fmt::format("{} elements", n);
    expect_close(values_of(b, state.m), m, allowed, "m, " + what);
    expect_close(values_of(b, state.v), v, allowed, "v, " + what);
    expect_close(values_of(b, state.w), w, allowed, "w, " + what);
    EXPECT_EQ(values_of(b, state.rounded), values_of(b, converted(b, state.w, dtype()))) << what;
  }
}

TEST_P(AdamW, GoesWithoutARoundedCopyAndWithAnyNumberOfThreads) {
  std::vector<std::byte> first;
  for (const int threads : {1, 2, 3}) {
    const auto backend = test::make_backend(threads);
    Backend& b = *backend;
    const State state(b, dtype(), 30'000);
    b.optimizer().adamw(b.compute_stream(), step, state.gradient, state.w, state.m, state.v, {});
    b.optimizer().adamw(b.compute_stream(), step, state.gradient, state.w, state.m, state.v, {});
    const std::vector<std::byte> bits = bytes_of(b, state.w);
    if (first.empty()) first = bits;
    EXPECT_EQ(bits, first) << threads << " threads";
  }
}

TEST(AdamWFirstStep, MovesByTheLearningRateAgainstTheSignOfTheGradient) {
  const auto backend = test::make_backend(1);
  Backend& b = *backend;
  const Tensor g = make_tensor(b, DType::fp64, {3}, {1e-3, -5, 0}), w = make_tensor(b, DType::fp64, {3}, {1, 1, 1});
  const Tensor m = make_tensor(b, DType::fp64, {3}, {0, 0, 0}), v = make_tensor(b, DType::fp64, {3}, {0, 0, 0});
  b.optimizer().adamw(b.compute_stream(), {.learning_rate = 0.5, .epsilon = 0}, g.view().flat(0, 2),
                      w.view().flat(0, 2), m.view().flat(0, 2), v.view().flat(0, 2), {});
  expect_close(values_of(b, w), std::vector<double>{0.5, 1.5, 1}, tolerance(DType::fp64, Operation::elementwise), "w");
}

TEST(AdamWChecks, RefuseShapesAndTypesThatDoNotFit) {
  const auto backend = test::make_backend(1);
  Backend& b = *backend;
  const auto tensor = [&](std::int64_t n, DType dtype) { return random_tensor(b, dtype, {n}, 1); };
  const auto run = [&](DType gradient, DType w, std::int64_t m, DType rounded) {
    b.optimizer().adamw(b.compute_stream(), step, tensor(4, gradient), tensor(4, w), tensor(m, w), tensor(4, w),
                        tensor(4, rounded));
  };
  EXPECT_NO_THROW(run(DType::fp32, DType::fp32, 4, DType::bf16));
  EXPECT_THROW(run(DType::bf16, DType::fp32, 4, DType::bf16), ShapeError);
  EXPECT_THROW(run(DType::bf16, DType::bf16, 4, DType::bf16), ShapeError);
  EXPECT_THROW(run(DType::fp32, DType::fp32, 5, DType::bf16), ShapeError);
  EXPECT_THROW(run(DType::fp64, DType::fp64, 4, DType::bf16), ShapeError);
}

}  // namespace
}  // namespace trireme
