#include "src/backend/kernels/cross_entropy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/support/finite_difference.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/support/test_backend.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme {
namespace {

using namespace test;

/// A cross entropy of n rows over a vocabulary, whose columns are on one rank or split over several.
struct CrossEntropy {
  std::vector<double> logits;  // [n, classes]
  std::vector<std::int32_t> targets;
  std::vector<double> weights;
  std::vector<double> losses, dlogits;  // computed
  std::int64_t classes = 0;
  double soft_cap = 0;  ///< cap that these logits have; 0: none
};

CrossEntropy random_case(std::int64_t n, std::int64_t classes) {
  CrossEntropy c;
  c.classes = classes;
  c.logits = random_values(n * classes, 1, -10, 10);
  c.weights = random_values(n, 2, 0.5, 1);
  for (const double u : random_values(n, 3, 0, 1)) c.targets.push_back(static_cast<std::int32_t>(u * classes));
  return c;
}

/// Computes by the definition, in fp64; the losses' gradients are the weights.
void reference(CrossEntropy& c) {
  c.losses.clear();
  c.dlogits.clear();
  for (std::size_t i = 0; i < c.targets.size(); ++i) {
    const double* row = c.logits.data() + i * c.classes;
    const double maximum = *std::max_element(row, row + c.classes);
    double sum = 0;
    for (std::int64_t j = 0; j < c.classes; ++j) sum += std::exp(row[j] - maximum);
    c.losses.push_back(c.weights[i] * (std::log(sum) + maximum - row[c.targets[i]]));
    for (std::int64_t j = 0; j < c.classes; ++j) {
      const double slope = c.soft_cap > 0 ? 1 - std::pow(row[j] / c.soft_cap, 2) : 1;
      c.dlogits.push_back((std::exp(row[j] - maximum) / sum - (j == c.targets[i] ? 1 : 0)) * c.weights[i] * slope);
    }
  }
}

/// Logits of the shard's classes, followed by columns of NaN.
std::vector<double> padded_columns(const CrossEntropy& c, const VocabularyShard& shard, std::int64_t padding) {
  std::vector<double> values;
  for (std::size_t i = 0; i < c.targets.size(); ++i) {
    const double* row = c.logits.data() + static_cast<std::int64_t>(i) * c.classes + shard.first_class;
    values.insert(values.end(), row, row + shard.classes);
    values.insert(values.end(), padding, std::nan(""));
  }
  return values;
}

/// Computes in `dtype` with the classes split at `splits`, as tensor-parallel ranks hold them, and with padding columns
/// of NaN after each shard. The sums and maxima over ranks are made here. Rounds c.logits to the type.
void compute(DType dtype, CrossEntropy& c, std::vector<std::int64_t> splits = {}, int threads = 2) {
  constexpr std::int64_t padding = 3;
  const auto backend = test::make_backend(threads);
  Backend& b = *backend;
  Stream& stream = b.compute_stream();
  CrossEntropyKernels& kernels = b.cross_entropy();
  const DType accumulation = accumulation_type(dtype);
  const std::int64_t n = static_cast<std::int64_t>(c.targets.size());
  splits.insert(splits.begin(), 0);
  splits.push_back(c.classes);
  const Tensor targets = make_tensor(b, {n}, c.targets), weights = make_tensor(b, accumulation, {n}, c.weights);

  struct Shard {
    VocabularyShard shard;
    Tensor logits, maximum, sum, target_logit;
  };
  std::vector<Shard> shards;
  std::vector<double> maximum(n, -std::numeric_limits<double>::infinity()), sum(n, 0), target(n, 0);
  for (std::size_t rank = 0; rank + 1 < splits.size(); ++rank) {
    const VocabularyShard shard{splits[rank], splits[rank + 1] - splits[rank]};
    const std::vector<double> values = padded_columns(c, shard, padding);
    const Shard& own = shards.emplace_back(shard, make_tensor(b, dtype, {n, shard.classes + padding}, values),
                                           poisoned_tensor(b, accumulation, {n}), poisoned_tensor(b, accumulation, {n}),
                                           poisoned_tensor(b, accumulation, {n}));
    kernels.statistics(stream, own.logits, shard, targets, own.maximum, own.sum, own.target_logit);
    const std::vector<double> own_maximum = values_of(b, own.maximum), chosen = values_of(b, own.target_logit);
    for (std::int64_t i = 0; i < n; ++i) maximum[i] = std::max(maximum[i], own_maximum[i]);
    for (std::int64_t i = 0; i < n; ++i) target[i] += chosen[i];
  }
  const Tensor all_maximum = make_tensor(b, accumulation, {n}, maximum);
  for (const Shard& own : shards) {
    kernels.rescale(stream, own.maximum, all_maximum, own.sum);
    const std::vector<double> sums = values_of(b, own.sum);
    for (std::int64_t i = 0; i < n; ++i) sum[i] += sums[i];
  }
  const Tensor all_sum = make_tensor(b, accumulation, {n}, sum), losses = make_tensor(b, accumulation, {n}, target);
  kernels.losses(stream, all_maximum, all_sum, losses, weights, losses);
  c.losses = values_of(b, losses);
  const auto expect_the_same_at_once =
      [&, inputs = padded_columns(c, {0, c.classes}, padding)](const std::vector<double>& gradients) {
        const VocabularyShard all{0, c.classes};
        const Tensor logits = make_tensor(b, dtype, {n, c.classes + padding}, inputs);
        const Tensor own_losses = poisoned_tensor(b, accumulation, {n});
        kernels.losses_and_gradient(stream, all, targets, weights, weights, c.soft_cap, own_losses, logits);
        const auto same = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
        EXPECT_TRUE(std::ranges::equal(values_of(b, own_losses), c.losses, same));
        EXPECT_TRUE(std::ranges::equal(values_of(b, logits), gradients, same));
      };

  c.dlogits.assign(n * c.classes, 0);
  for (const auto& [shard, logits, own_maximum, own_sum, own_target] : shards) {
    const std::vector<double> rounded = values_of(b, logits);
    kernels.backward(stream, shard, all_maximum, all_sum, targets, weights, c.soft_cap, logits);
    const std::vector<double> gradients = values_of(b, logits);
    if (shards.size() == 1) expect_the_same_at_once(gradients);
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < shard.classes + padding; ++j) {
        const double gradient = gradients[i * (shard.classes + padding) + j];
        if (j < shard.classes) {
          c.logits[i * c.classes + shard.first_class + j] = rounded[i * (shard.classes + padding) + j];
          c.dlogits[i * c.classes + shard.first_class + j] = gradient;
        } else {
          EXPECT_EQ(gradient, 0) << "padding";
        }
      }
    }
  }
}

TEST(CrossEntropy, HandWorkedRow) {
  CrossEntropy c;
  c.classes = 2;
  c.logits = {0, std::log(3)};
  c.targets = {0};
  c.weights = {2};
  compute(test::exact_type(), c);
  const Tolerance close = tolerance(test::exact_type(), Operation::elementwise);
  expect_close(c.losses, std::vector<double>{2 * std::log(4)}, close, "loss");
  expect_close(c.dlogits, std::vector<double>{2 * (0.25 - 1), 2 * 0.75}, close, "dlogits");
}

class CrossEntropyTypes : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(CrossEntropy, CrossEntropyTypes, testing::ValuesIn(test::kernel_types()), name_of_type);

TEST_P(CrossEntropyTypes, MatchesTheDefinitionHoweverItIsSplit) {
  const DType accumulation = accumulation_type(GetParam());
  for (const std::int64_t n : {0, 1, 31, 33, 1025}) {
    for (const std::int64_t classes : {1, 31, 33, 1025, 3000}) {
      // Rows are independent: of the slow combinations one case each is enough.
      if ((n == 31 && classes != 1025) || (n == 1025 && classes != 33)) continue;
      for (const auto& splits : {std::vector<std::int64_t>{}, {classes / 3, classes / 2}, {0, classes}}) {
        if (n == 1025 && !splits.empty()) continue;
        CrossEntropy actual = random_case(n, classes);
        compute(GetParam(), actual, splits);
        CrossEntropy expected = actual;
        reference(expected);
        const std::string size = fmt::format(" of {} rows, {} classes, {} parts", n, classes, splits.size() + 1);
        expect_close(actual.losses, expected.losses, tolerance(accumulation, Operation::sum), "losses" + size);
        expect_close(actual.dlogits, expected.dlogits, tolerance(GetParam(), Operation::sum), "dlogits" + size);
      }
    }
  }
}

// e^200 is beyond fp32. Few classes leave threads and ranks without one.
TEST_P(CrossEntropyTypes, MatchesTheDefinitionFarBelowZero) {
  for (const auto& splits : {std::vector<std::int64_t>{}, {10, 20}}) {
    CrossEntropy actual = random_case(5, 33);
    for (double& logit : actual.logits) logit -= 200;
    compute(GetParam(), actual, splits);
    CrossEntropy expected = actual;
    reference(expected);
    const DType accumulation = accumulation_type(GetParam());
    expect_close(actual.losses, expected.losses, tolerance(accumulation, Operation::sum), "losses");
    expect_close(actual.dlogits, expected.dlogits, tolerance(GetParam(), Operation::sum), "dlogits");
  }
}

TEST_P(CrossEntropyTypes, GradientsOfCappedLogitsAreThoseBeforeTheCap) {
  for (const auto& splits : {std::vector<std::int64_t>{}, {340, 700}}) {
    CrossEntropy actual = random_case(33, 1025);
    actual.soft_cap = 12;
    compute(GetParam(), actual, splits);
    CrossEntropy expected = actual;
    reference(expected);
    expect_close(actual.dlogits, expected.dlogits, tolerance(GetParam(), Operation::sum), "dlogits");
  }
}

TEST_P(CrossEntropyTypes, AnyNumberOfThreadsGivesTheSameBits) {
  CrossEntropy one = random_case(40, 2000), two = one, three = one;
  compute(GetParam(), one, {}, 1);
  compute(GetParam(), two, {}, 2);
  compute(GetParam(), three, {}, 3);
  for (const CrossEntropy* other : {&two, &three}) {
    EXPECT_EQ(one.losses, other->losses);
    EXPECT_EQ(one.dlogits, other->dlogits);
  }
}

TEST(CrossEntropy, BackwardMatchesFiniteDifference) {
  TRIREME_NEEDS_FP64_KERNELS();
  CrossEntropy c = random_case(3, 7);
  compute(DType::fp64, c);
  const std::vector<double> gradient = c.dlogits;
  const auto loss = [&] {
    compute(DType::fp64, c, {}, 1);
    return std::accumulate(c.losses.begin(), c.losses.end(), 0.0);
  };
  expect_derivative(c.logits, gradient, loss, "dlogits");
}

TEST(CrossEntropy, BackwardThroughASoftCapMatchesFiniteDifference) {
  TRIREME_NEEDS_FP64_KERNELS();
  std::vector<double> given = random_case(3, 7).logits;
  const auto capped = [&] {
    CrossEntropy c = random_case(3, 7);
    c.soft_cap = 6;
    for (std::size_t i = 0; i < given.size(); ++i) c.logits[i] = c.soft_cap * std::tanh(given[i] / c.soft_cap);
    compute(DType::fp64, c, {}, 1);
    return c;
  };
  const std::vector<double> gradient = capped().dlogits;
  const auto loss = [&] {
    const CrossEntropy c = capped();
    return std::accumulate(c.losses.begin(), c.losses.end(), 0.0);
  };
  expect_derivative(given, gradient, loss, "dlogits");
}

TEST(CrossEntropy, ARowOfNoWeightHasNoLossEvenWhereItIsNotFinite) {
  CrossEntropy c = random_case(2, 5);
  c.weights = {0, 1};
  c.logits[0] = std::numeric_limits<double>::infinity();
  compute(DType::fp32, c);
  EXPECT_EQ(c.losses[0], 0);
  EXPECT_TRUE(std::isfinite(c.losses[1]));
}

// Masked classes, at the row's begin for one and everywhere on one of the ranks for the other; and what is not a
// number.
TEST(CrossEntropy, TakesLogitsOfMinusInfinityAndPassesNaNOn) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  CrossEntropy c = random_case(2, 3000);
  std::fill_n(c.logits.begin(), 1500, -infinity);
  std::fill_n(c.logits.begin() + 3000 + 1000, 2000, -infinity);
  c.targets = {2900, 3};
  for (const auto& splits : {std::vector<std::int64_t>{}, {1000}}) {
    CrossEntropy actual = c;
    compute(DType::fp32, actual, splits);
    CrossEntropy expected = actual;
    reference(expected);
    expect_close(actual.losses, expected.losses, tolerance(DType::fp32, Operation::sum), "losses");
    expect_close(actual.dlogits, expected.dlogits, tolerance(DType::fp32, Operation::sum), "dlogits");
    for (const std::int64_t column : {0, 700, 2999}) {
      CrossEntropy poisoned = c;
      poisoned.logits[column] = std::nan("");
      compute(DType::fp32, poisoned, splits);
      EXPECT_TRUE(std::isnan(poisoned.losses[0])) << column;
      EXPECT_TRUE(std::isfinite(poisoned.losses[1]));
    }
  }
}

/// Numbers of rivals of each row's target, in `dtype`, with the classes split at `splits`.
std::vector<double> rivals_of(DType dtype, const CrossEntropy& c, std::vector<std::int64_t> splits = {}) {
  constexpr std::int64_t padding = 3;
  const auto backend = test::make_backend(2);
  Backend& b = *backend;
  const std::int64_t n = static_cast<std::int64_t>(c.targets.size());
  splits.insert(splits.begin(), 0);
  splits.push_back(c.classes);
  std::vector<double> chosen(n), sums(n, 0);
  for (std::int64_t i = 0; i < n; ++i) chosen[i] = c.logits[i * c.classes + c.targets[i]];
  const Tensor targets = make_tensor(b, {n}, c.targets),
               target_logit = make_tensor(b, accumulation_type(dtype), {n}, chosen);
  for (std::size_t rank = 0; rank + 1 < splits.size(); ++rank) {
    const VocabularyShard shard{splits[rank], splits[rank + 1] - splits[rank]};
    const Tensor logits = make_tensor(b, dtype, {n, shard.classes + padding}, padded_columns(c, shard, padding));
    const Tensor rivals = poisoned_tensor(b, accumulation_type(dtype), {n});
    b.cross_entropy().rivals(b.compute_stream(), logits, shard, targets, target_logit, rivals);
    const std::vector<double> own = values_of(b, rivals);
    for (std::int64_t i = 0; i < n; ++i) sums[i] += own[i];
  }
  return sums;
}

TEST_P(CrossEntropyTypes, RivalsAreTheClassesThatComeBeforeTheTarget) {
  for (const std::int64_t classes : {1, 9, 1030, 3000}) {
    // Few different logits, exact in every type: many are equal.
    CrossEntropy c = random_case(20, classes);
    for (double& logit : c.logits) logit = std::round(logit / 2);
    c.targets[0] = 0;
    c.targets[1] = static_cast<std::int32_t>(classes - 1);
    std::vector<double> expected;
    for (std::int64_t i = 0; i < 20; ++i) {
      const double* row = c.logits.data() + i * classes;
      const std::int32_t target = c.targets[i];
      double before = 0;
      for (std::int64_t j = 0; j < classes; ++j) {
        before += row[j] > row[target] || (row[j] == row[target] && j < target) ? 1 : 0;
      }
      expected.push_back(before);
    }
    for (const auto& splits : {std::vector<std::int64_t>{}, {classes / 3, classes / 2}, {0, classes}}) {
      EXPECT_EQ(rivals_of(GetParam(), c, splits), expected) << classes << " classes, " << splits.size() + 1 << " parts";
    }
  }
}

TEST(CrossEntropy, NaNOutranksEveryTarget) {
  CrossEntropy c;
  c.classes = 3;
  c.logits = {1, std::nan(""), 0, std::nan(""), 2, 3, 5, 5, 5};
  c.targets = {0, 0, 0};
  EXPECT_EQ(rivals_of(DType::fp32, c), (std::vector<double>{1, 2, 0}));
}

}  // namespace
}  // namespace trireme
