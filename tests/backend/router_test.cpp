#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "tests/backend/megatron_routing.hpp"
#include "tests/backend/router_definition.hpp"
#include "tests/support/finite_difference.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/support/test_backend.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme {
namespace {

using namespace test;

RouterInputs random_inputs(std::int64_t n, std::int64_t count, const RouterProblem& problem, double low, double high) {
  return {.n = n,
          .count = count,
          .problem = problem,
          .logits = random_values(n * count, 1, low, high),
          .dweights = random_values(n * problem.per_token, 2),
          .loads = random_values(problem.segments * count, 3, 0, 2),
          .factor = 0.7,
          .z_factor = 0.1};
}

/// Runs both kernels in `dtype`, to which it rounds in.logits.
RouterOutputs routed(Backend& b, DType dtype, RouterInputs& in) {
  Stream& stream = b.compute_stream();
  const DType accumulation = accumulation_type(dtype);
  const Shape by_expert{in.n, in.count}, by_choice{in.n, in.problem.per_token},
      by_segment{in.problem.segments, in.count};
  const Tensor logits = make_tensor(b, dtype, by_expert, in.logits);
  in.logits = values_of(b, logits);
  const Tensor experts = poisoned_integers(b, by_choice), weights = poisoned_tensor(b, accumulation, by_choice);
  const Tensor counts = poisoned_tensor(b, accumulation, by_segment),
               sums = poisoned_tensor(b, accumulation, by_segment);
  const Tensor token_sums = poisoned_tensor(b, accumulation, {2}), dlogits = poisoned_tensor(b, dtype, by_expert);
  const Tensor dweights = make_tensor(b, accumulation, by_choice, in.dweights);
  const Tensor loads = make_tensor(b, accumulation, by_segment, in.loads);
  const Tensor bias = in.bias.empty() ? Tensor() : make_tensor(b, accumulation, {in.count}, in.bias);
  b.experts().route(stream, in.problem, logits, bias, experts, weights, counts, sums, token_sums);
  b.experts().route_backward(stream, in.problem, logits, experts, dweights, {loads, in.factor, in.z_factor}, dlogits);
  return {integers_of(b, experts), values_of(b, weights),    values_of(b, counts),
          values_of(b, sums),      values_of(b, token_sums), values_of(b, dlogits)};
}

void expect_equal(const RouterOutputs& actual, const RouterOutputs& expected, DType dtype, const std::string& name) {
  const Tolerance wide = tolerance(accumulation_type(dtype), Operation::sum);
  EXPECT_EQ(actual.experts, expected.experts) << name;
  expect_close(actual.weights, expected.weights, wide, "weights of " + name);
  EXPECT_EQ(actual.counts, expected.counts) << name;
  expect_close(actual.sums, expected.sums, wide, "sums of " + name);
  expect_close(actual.token_sums, expected.token_sums, wide, "sums over tokens of " + name);
  expect_close(actual.dlogits, expected.dlogits, tolerance(dtype, Operation::sum), "dlogits of " + name);
}

constexpr RouterScore sigmoid = RouterScore::sigmoid;

class Router : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, Router, testing::ValuesIn(test::kernel_types()), name_of_type);

TEST_P(Router, HandWorkedTokens) {
  // Logits ln 4, ln 2, ln 2, 0: softmax 4/9, 2/9, 2/9, 1/9. Experts 1 and 2 are equal.
  const double ln2 = std::log(2), ln4 = 2 * ln2;
  RouterInputs in{.n = 2,
                  .count = 4,
                  .problem = {.per_token = 2, .scaling = 3},
                  .logits = {0, ln2, ln2, ln4, ln4, ln2, 0, 0},
                  .dweights = {1, 0, 0, 1},
                  .loads = {0, 0, 0, 0}};
  RouterOutputs out = routed(b(), dtype(), in);
  EXPECT_EQ(out.experts, (std::vector<std::int32_t>{3, 1, 0, 1}));
  EXPECT_EQ(out.counts, (std::vector<double>{1, 2, 0, 1}));
  // The logarithms are rounded to the type.
  const Tolerance rounding = tolerance(dtype(), Operation::rounded_sum);
  const Tolerance close{rounding.relative, rounding.absolute + tolerance(dtype(), Operation::sum).absolute};
  expect_close(out.weights, std::vector<double>{2, 1, 2, 1}, close, "weights");
  const double slope = 3 * 2.0 / 9;
  expect_close(out.dlogits, std::vector<double>{0, -slope, 0, slope, -slope, slope, 0, 0}, close, "dlogits");
  in.problem.softmax_of_chosen = false;
  out = routed(b(), dtype(), in);
  const double ninth = 1.0 / 9, eighth = 1.0 / 8;
  expect_close(out.weights, std::vector<double>{12 * ninth, 6 * ninth, 12 * eighth, 6 * eighth}, close, "weights");
  expect_close(out.sums,
               std::vector<double>{ninth + 4 * eighth, 2 * ninth + 2 * eighth, 2 * ninth + eighth, 4 * ninth + eighth},
               close, "sums");
}

TEST_P(Router, MatchesTheDefinition) {
  struct Sizes {
    std::int64_t n, count;
    RouterProblem problem;
  };
  const std::vector<Sizes> cases{
      {0, 4, {.per_token = 2}},
      {1, 512, {.per_token = 8, .softmax_of_chosen = false}},
      {33, 1, {.per_token = 1}},
      {33, 5, {.per_token = 5, .softmax_of_chosen = false, .scaling = 0.5}},
      {33, 40, {.per_token = 40, .score = sigmoid, .segments = 33}},
      {33, 12, {.per_token = 1, .score = sigmoid, .segments = 3}},
      {1025, 8, {.per_token = 2, .segments = 5}},
      {130, 33, {.per_token = 3, .score = sigmoid, .scaling = 2.5, .segments = 13}},
      {33, 300, {.per_token = 6}},
      {33, 24, {.per_token = 6, .softmax_of_chosen = false, .groups = 3, .groups_per_token = 3}},
      {64, 12, {.per_token = 4, .groups = 4, .groups_per_token = 2}},
      {33, 16, {.per_token = 4, .score = sigmoid, .scaling = 2.5, .groups = 4, .groups_per_token = 2, .segments = 3}},
      {33, 256, {.per_token = 8, .score = sigmoid, .groups = 8, .groups_per_token = 4, .segments = 11}},
  };
  for (const Sizes& sizes : cases) {
    // Positive logits with groups: sigmoid(x) + sigmoid(-x) is 1 for every x, and sums of groups would often be equal.
    const double low = sizes.problem.groups > 1 ? 0.5 : -4;
    RouterInputs in = random_inputs(sizes.n, sizes.count, sizes.problem, low, 4.5);
    const RouterOutputs actual = routed(b(), dtype(), in);
    expect_equal(actual, defined(in), dtype(),
                 fmt::format("{} tokens, {} of {} experts, {} groups", sizes.n, sizes.problem.per_token, sizes.count,
                             sizes.problem.groups));
  }
}

TEST_P(Router, ChoosesByScorePlusBias) {
  // Sigmoids 1/5, 1/2, 4/5, 1/2: with the bias 6/5, 1/2, 4/5 and 4/5.
  const double ln4 = std::log(4);
  RouterInputs in{.n = 1,
                  .count = 4,
                  .problem = {.per_token = 2, .score = sigmoid},
                  .logits = {-ln4, 0, ln4, 0},
                  .dweights = {1, 0},
                  .loads = {0, 0, 0, 0},
                  .bias = {1, 0, 0, 0.25}};
  const RouterOutputs out = routed(b(), dtype(), in);
  EXPECT_EQ(out.experts, (std::vector<std::int32_t>{0, 2}));
  EXPECT_EQ(out.counts, (std::vector<double>{0, 1, 1, 0})) << "the balance loss has no bias";
  // The logarithms are rounded to the type.
  const Tolerance rounding = tolerance(dtype(), Operation::rounded_sum);
  const Tolerance close{rounding.relative, rounding.absolute + tolerance(dtype(), Operation::sum).absolute};
  expect_close(out.weights, std::vector<double>{0.2, 0.8}, close, "weights");
  for (const RouterProblem& problem : std::vector<RouterProblem>{
           {.per_token = 1, .score = sigmoid},
           {.per_token = 6, .score = sigmoid, .scaling = 2.5, .segments = 11},
           {.per_token = 4, .score = sigmoid, .groups = 8, .groups_per_token = 2, .segments = 3}}) {
    for (const std::int64_t count : {16, 40, 256}) {
      RouterInputs random = random_inputs(33, count, problem, -4, 4);
      random.bias = random_values(count, 4, -1, 1);
      const RouterOutputs actual = routed(b(), dtype(), random);
      expect_equal(actual, defined(random), dtype(), fmt::format("{} experts, {} groups", count, problem.groups));
    }
  }
}

TEST_P(Router, ABiasOf0ChangesNothing) {
  for (const std::int64_t groups : {1, 4}) {
    RouterInputs in =
        random_inputs(33, 24, {.per_token = 4, .score = sigmoid, .groups = groups, .groups_per_token = groups}, -2, 2);
    const RouterOutputs expected = routed(b(), dtype(), in);
    in.bias.assign(24, 0);
    expect_equal(routed(b(), dtype(), in), expected, dtype(), fmt::format("{} groups", groups));
  }
}

// Few different logits: most experts and groups have equals.
TEST_P(Router, PrefersTheLowerOfEqualExpertsAndGroups) {
  const std::vector<RouterProblem> problems{{.per_token = 5},
                                            {.per_token = 3, .score = sigmoid},
                                            {.per_token = 4, .groups = 5, .groups_per_token = 2},
                                            {.per_token = 2, .score = sigmoid, .groups = 5, .groups_per_token = 2}};
  for (const RouterProblem& problem : problems) {
    for (const double levels : {0.0, 2.0}) {
      RouterInputs in = random_inputs(40, 40, problem, -levels, levels);
      for (double& logit : in.logits) logit = std::round(logit);
      const RouterOutputs actual = routed(b(), dtype(), in);
      expect_equal(actual, defined(in), dtype(),
                   fmt::format("{} experts per token, {} groups", problem.per_token, problem.groups));
    }
  }
}

// All sigmoids of these logits round to 1 in fp32.
TEST_P(Router, ComparesLogitsWhereScoresAreRounded) {
  RouterInputs in = random_inputs(1, 5, {.per_token = 2, .score = sigmoid}, 0, 0);
  in.logits = {40, 60, 50, 70, 30};
  EXPECT_EQ(routed(b(), dtype(), in).experts, (std::vector<std::int32_t>{3, 1}));
}

TEST_P(Router, MatchesMegatronCore) {
  for (const MegatronRouting& c : megatron_routings()) {
    const std::int64_t n = 6, k = c.problem.per_token, rows = n / c.problem.segments;
    const double factor = static_cast<double>(c.count) * c.balance_coefficient /
                          static_cast<double>(k * rows * rows * c.problem.segments);
    RouterInputs in{.n = n,
                    .count = c.count,
                    .problem = c.problem,
                    .logits = c.logits,
                    .dweights = c.dweights,
                    .loads = c.counts,
                    .factor = factor,
                    .z_factor = c.z_coefficient / n,
                    .bias = c.bias};
    const RouterOutputs actual = routed(b(), dtype(), in);
    EXPECT_EQ(actual.experts, c.experts) << c.name;
    EXPECT_EQ(actual.counts, c.counts) << c.name;
    const Tolerance wide = tolerance(accumulation(), Operation::sum);
    expect_close(actual.weights, c.weights, wide, "weights of " + c.name);
    const double balance = std::inner_product(c.counts.begin(), c.counts.end(), actual.sums.begin(), 0.0) * factor;
    expect_close(std::vector{balance, actual.token_sums[0] * in.z_factor}, std::vector{c.balance_loss, c.z_loss}, wide,
                 "losses of " + c.name);
    expect_close(actual.dlogits, c.dlogits, tolerance(dtype(), Operation::sum), "dlogits of " + c.name);

    const Shape shape{n, k};
    const Tensor kept = poisoned_integers(b(), shape);
    b().experts().limit_load(stream(), make_tensor(b(), shape, actual.experts),
                             make_tensor(b(), accumulation(), shape, actual.weights), c.count, c.capacity, false, kept);
    EXPECT_EQ(integers_of(b(), kept), c.kept) << c.name;
  }
}

TEST_P(Router, ComputesTheSameWithoutStatistics) {
  RouterInputs in = random_inputs(33, 9, {.per_token = 3, .softmax_of_chosen = false}, -2, 2);
  const RouterOutputs expected = routed(b(), dtype(), in);
  const Tensor logits = make_tensor(b(), dtype(), {33, 9}, in.logits);
  const Tensor experts = poisoned_integers(b(), {33, 3}), weights = poisoned_tensor(b(), accumulation(), {33, 3});
  const Tensor token_sums = poisoned_tensor(b(), accumulation(), {2});
  for (const bool with_token_sums : {false, true}) {
    b().experts().route(stream(), in.problem, logits, {}, experts, weights, {}, {},
                        with_token_sums ? token_sums.view() : TensorView());
    EXPECT_EQ(integers_of(b(), experts), expected.experts);
    EXPECT_EQ(values_of(b(), weights), expected.weights);
  }
  EXPECT_EQ(values_of(b(), token_sums), expected.token_sums);
}

// Later kernels use experts as indices, before a run's guards see the NaN.
TEST_P(Router, ChoosesDifferentExpertsOfLogitsThatAreNotNumbers) {
  const double nan = std::nan(""), infinity = HUGE_VAL;
  for (const RouterProblem& problem : {RouterProblem{.per_token = 4},
                                       {.per_token = 4, .softmax_of_chosen = false, .groups = 3, .groups_per_token = 2},
                                       {.per_token = 4, .score = sigmoid, .groups = 3, .groups_per_token = 2}}) {
    RouterInputs in = random_inputs(5, 12, problem, -1, 1);
    std::fill_n(in.logits.begin(), 12, nan);
    for (const int i : {12, 14, 15, 20}) in.logits[i] = nan;
    std::fill_n(in.logits.begin() + 24, 11, -infinity);
    for (const int i : {36, 40, 41, 42, 43, 47}) in.logits[i] = infinity;
    for (const int i : {48, 53, 57}) in.logits[i] = infinity;
    for (const int i : {49, 56}) in.logits[i] = nan;
    if (problem.score == sigmoid) in.bias.assign(12, 0.5);
    const std::vector<std::int32_t> experts = routed(b(), dtype(), in).experts;
    for (auto token = experts.begin(); token != experts.end(); token += 4) {
      const std::set<std::int32_t> different(token, token + 4);
      EXPECT_EQ(different.size(), 4U);
      EXPECT_GE(*different.begin(), 0);
      EXPECT_LT(*different.rbegin(), 12);
    }
  }
}

TEST_P(Router, AnyNumberOfThreadsGivesTheSameBits) {
  std::vector<RouterOutputs> results;
  for (const int threads : {1, 2, 3}) {
    RouterInputs in = random_inputs(500, 40, {.per_token = 6, .segments = 4}, -2, 2);
    results.push_back(routed(*test::make_backend(threads), dtype(), in));
  }
  for (const RouterOutputs& other : results) {
    EXPECT_EQ(other.experts, results[0].experts);
    EXPECT_EQ(other.weights, results[0].weights);
    EXPECT_EQ(other.sums, results[0].sums);
    EXPECT_EQ(other.token_sums, results[0].token_sums);
    EXPECT_EQ(other.dlogits, results[0].dlogits);
  }
}

TEST(RouterGradient, MatchesFiniteDifference) {
  TRIREME_NEEDS_FP64_KERNELS();
  const auto backend = test::make_backend(1);
  for (const RouterProblem& problem : std::vector<RouterProblem>{
           {.per_token = 2, .segments = 3},
           {.per_token = 3, .softmax_of_chosen = false, .scaling = 1.5},
           {.per_token = 1, .score = sigmoid, .scaling = 2},
           {.per_token = 4, .score = sigmoid, .scaling = 2.5, .groups = 3, .groups_per_token = 2, .segments = 3}}) {
    RouterInputs in = random_inputs(3, 6, problem, -2, 2);
    if (problem.score == sigmoid) in.bias = {0.5, -0.25, 0, 1, -0.5, 0.25};
    const std::vector<double> gradient = routed(*backend, DType::fp64, in).dlogits;
    const auto loss = [&] {
      const RouterOutputs out = routed(*backend, DType::fp64, in);
      return std::inner_product(out.weights.begin(), out.weights.end(), in.dweights.begin(), 0.0) +
             in.factor * std::inner_product(out.sums.begin(), out.sums.end(), in.loads.begin(), 0.0) +
             in.z_factor * out.token_sums[0];
    };
    expect_derivative(in.logits, gradient, loss, "dlogits");
  }
}

TEST(RouterProblem, RefusesSizesThatDoNotFit) {
  const auto backend = test::make_backend(1);
  const auto route = [&](std::int64_t n, std::int64_t count, const RouterProblem& problem) {
    RouterInputs in = random_inputs(n, count, problem, -1, 1);
    routed(*backend, DType::fp32, in);
  };
  EXPECT_NO_THROW(route(4, 6, {.per_token = 2, .groups = 3, .groups_per_token = 2, .segments = 2}));
  EXPECT_THROW(route(4, 6, {.per_token = 7}), ShapeError);
  EXPECT_THROW(route(4, 6, {.per_token = 0}), ShapeError);
  EXPECT_THROW(route(4, max_routed_experts + 1, {.per_token = 2}), ShapeError);
  EXPECT_THROW(route(4, 6, {.per_token = 2, .groups = 4, .groups_per_token = 2}), ShapeError);
  EXPECT_THROW(route(4, 6, {.per_token = 3, .groups = 3, .groups_per_token = 2}), ShapeError);
  EXPECT_THROW(route(4, 6, {.per_token = 4, .groups = 3, .groups_per_token = 4}), ShapeError);
  EXPECT_THROW(route(4, 6, {.per_token = 3, .groups = 3, .groups_per_token = 1}), ShapeError);
  EXPECT_THROW(route(4, 6, {.per_token = 2, .segments = 3}), ShapeError);
  RouterInputs biased = random_inputs(4, 6, {.per_token = 2}, -1, 1);
  biased.bias.assign(6, 0);
  EXPECT_THROW(routed(*backend, DType::fp32, biased), ShapeError) << "softmax";
  biased.problem.score = sigmoid;
  EXPECT_NO_THROW(routed(*backend, DType::fp32, biased));
}

}  // namespace
}  // namespace trireme
