#include "src/backend/kernels/norm.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/finite_difference.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/support/test_backend.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme {
namespace {

using namespace test;

constexpr double epsilon = 1e-5;
const std::vector<std::int64_t> sample_numbers = {7, (std::int64_t{3} << 32) + 5, 12};

/// The tensors of a normalisation of n rows of h, as numbers. RMSNorm has neither bias nor mean.
struct NormTensors {
  bool rms = false;
  double offset = 0;                                           // added to the weights
  std::vector<double> x, weight, bias, dy, residual_gradient;  // given
  std::vector<double> y, mean, reciprocal_deviation;           // results of forward
  std::vector<double> dx, dweight, dbias;                      // results of backward; dweight, dbias start at 1
  std::int64_t rows() const { return h() == 0 ? 0 : static_cast<std::int64_t>(x.size()) / h(); }
  std::int64_t h() const { return static_cast<std::int64_t>(weight.size()); }
};

NormTensors random_norm(std::int64_t n, std::int64_t h, bool rms = false) {
  NormTensors t;
  t.rms = rms;
  t.x = random_values(n * h, 1, 0, 3);
  t.weight = random_values(h, 2, 0.5, 1.5);
  if (!rms) t.bias = random_values(h, 3);
  t.dy = random_values(n * h, 4);
  t.residual_gradient = random_values(n * h, 5);
  return t;
}

/// Computes by the definition, in fp64, from the inputs in t.
void reference(NormTensors& t) {
  const std::int64_t h = t.h();
  t.y.clear();
  t.mean.clear();
  t.reciprocal_deviation.clear();
  t.dx.clear();
  t.dweight.assign(h, 1);
  t.dbias.assign(t.bias.size(), 1);
  for (std::int64_t i = 0; i < t.rows(); ++i) {
    const double* x = t.x.data() + i * h;
    const double* dy = t.dy.data() + i * h;
    const double mean = t.rms ? 0 : std::accumulate(x, x + h, 0.0) / h;
    double variance = 0;
    for (std::int64_t j = 0; j < h; ++j) variance += (x[j] - mean) * (x[j] - mean) / h;
    const double r = 1 / std::sqrt(variance + epsilon);
    double g_mean = 0, g_dot = 0;
    for (std::int64_t j = 0; j < h; ++j) {
      const double normalised = (x[j] - mean) * r;
      t.y.push_back(normalised * (t.weight[j] + t.offset) + (t.rms ? 0 : t.bias[j]));
      g_mean += t.rms ? 0 : dy[j] * (t.weight[j] + t.offset) / h;
      g_dot += dy[j] * (t.weight[j] + t.offset) * normalised / h;
      t.dweight[j] += dy[j] * normalised;
      if (!t.rms) t.dbias[j] += dy[j];
    }
    for (std::int64_t j = 0; j < h; ++j) {
      const double added = t.residual_gradient.empty() ? 0 : t.residual_gradient[i * h + j];
      t.dx.push_back(added + r * (dy[j] * (t.weight[j] + t.offset) - g_mean - (x[j] - mean) * r * g_dot));
    }
    if (!t.rms) t.mean.push_back(mean);
    t.reciprocal_deviation.push_back(r);
  }
}

/// Forward and backward in `dtype`; rounds the inputs in t to it and fills in the results.
void compute(DType dtype, NormTensors& t, int threads = 2, bool in_place = false) {
  const auto backend = test::make_backend(threads);
  Backend& b = *backend;
  Stream& stream = b.compute_stream();
  const std::int64_t n = t.rows(), h = t.h();
  const DType accumulation = accumulation_type(dtype);
  const Tensor x = make_tensor(b, dtype, {n, h}, t.x), weight = make_tensor(b, dtype, {h}, t.weight);
  const Tensor dy = make_tensor(b, dtype, {n, h}, t.dy);
  Tensor bias, mean, dbias, residual;
  if (!t.residual_gradient.empty()) residual = make_tensor(b, dtype, {n, h}, t.residual_gradient);
  const Tensor y = poisoned_tensor(b, dtype, {n, h}), dx = poisoned_tensor(b, dtype, {n, h});
  const Tensor rstd = poisoned_tensor(b, accumulation, {n});
  const Tensor dweight = make_tensor(b, accumulation, {h}, std::vector<double>(h, 1));
  if (!t.rms) {
    bias = make_tensor(b, dtype, {h}, t.bias);
    mean = poisoned_tensor(b, accumulation, {n});
    dbias = make_tensor(b, accumulation, {h}, std::vector<double>(h, 1));
    t.bias = values_of(b, bias);
  }
  t.x = values_of(b, x);
  t.weight = values_of(b, weight);
  t.dy = values_of(b, dy);
  if (residual.view()) t.residual_gradient = values_of(b, residual);
  b.norm().normalise(stream, x, {weight, t.offset}, bias, epsilon, y, {mean, rstd});
  const TensorView to = !in_place ? dx.view() : residual.view() ? residual.view() : dy.view();
  b.norm().normalise_backward(stream, dy, x, {weight, t.offset}, {mean, rstd}, residual, to, dweight, dbias);
  t.y = values_of(b, y);
  t.reciprocal_deviation = values_of(b, rstd);
  t.dx = values_of(b, to);
  t.dweight = values_of(b, dweight);
  if (t.rms) return;
  t.mean = values_of(b, mean);
  t.dbias = values_of(b, dbias);
}

TEST(LayerNorm, HandWorkedRow) {
  NormTensors t;
  t.x = {1, 3};  // mean 2, deviation 1
  t.weight = {2, 10};
  t.bias = {0.5, 0};
  t.dy = {1, 0.5};
  compute(test::exact_type(), t);
  const double r = 1 / std::sqrt(1 + epsilon);
  const Tolerance close = tolerance(test::exact_type(), Operation::elementwise);
  expect_close(t.y, std::vector<double>{0.5 - 2 * r, 10 * r}, close, "y");
  expect_close(t.mean, std::vector<double>{2}, close, "mean");
  expect_close(t.reciprocal_deviation, std::vector<double>{r}, close, "reciprocal deviation");
  expect_close(t.dweight, std::vector<double>{1 - r, 1 + 0.5 * r}, close, "dweight");
  expect_close(t.dbias, std::vector<double>{2, 1.5}, close, "dbias");
  // g = (2, 5): mean 3.5, dot with the normalised row 1.5 r.
  // Terms of 1.5 cancel to 1.5e-5.
  expect_close(t.dx, std::vector<double>{r * (-1.5 + 1.5 * r * r), r * (1.5 - 1.5 * r * r)},
               {1e-9, 1e5 * close.relative}, "dx");
}

TEST(RmsNorm, HandWorkedRowWithAWeightStoredAsTheDifferenceFromOne) {
  NormTensors t;
  t.rms = true;
  t.x = {1, 7};  // mean of squares 25
  t.weight = {1, 9};
  t.offset = 1;
  t.dy = {1, 0.5};
  compute(test::exact_type(), t);
  const double r = 1 / std::sqrt(25 + epsilon);
  const Tolerance close = tolerance(test::exact_type(), Operation::elementwise);
  expect_close(t.y, std::vector<double>{2 * r, 70 * r}, close, "y");
  expect_close(t.reciprocal_deviation, std::vector<double>{r}, close, "reciprocal deviation");
  expect_close(t.dweight, std::vector<double>{1 + r, 1 + 3.5 * r}, close, "dweight");
  // g = (2, 5): the mean of its product with the normalised row is (2 + 35) r / 2.
  expect_close(t.dx, std::vector<double>{r * (2 - 18.5 * r * r), r * (5 - 7 * 18.5 * r * r)}, close, "dx");
}

class LayerNormTypes : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(LayerNorm, LayerNormTypes, testing::ValuesIn(test::kernel_types()), name_of_type);

TEST_P(LayerNormTypes, MatchesTheDefinition) {
  for (const auto& [n, h] : std::vector<std::pair<int, int>>{
           {0, 8}, {1, 1}, {3, 31}, {31, 33}, {1025, 40}, {70, 1025}, {9, 2000}, {2, 3208}, {2, 6160}}) {
    for (const bool with_residual : {true, false}) {
      for (const bool rms : {false, true}) {
        NormTensors actual = random_norm(n, h, rms);
        if (!with_residual) actual.residual_gradient.clear();
        actual.offset = with_residual == rms ? 1 : 0;
        compute(GetParam(), actual);
        NormTensors expected = actual;
        reference(expected);
        const Tolerance close = tolerance(GetParam(), Operation::sum);
        const Tolerance wide = tolerance(accumulation_type(GetParam()), Operation::sum);
        const std::string size = fmt::format("{} of {} rows of {}", rms ? " (RMSNorm)" : "", n, h);
        expect_close(actual.y, expected.y, close, "y" + size);
        expect_close(actual.mean, expected.mean, wide, "mean" + size);
        expect_close(actual.reciprocal_deviation, expected.reciprocal_deviation, wide, "reciprocal deviation" + size);
        expect_close(actual.dweight, expected.dweight, wide, "dweight" + size);
        expect_close(actual.dbias, expected.dbias, wide, "dbias" + size);
        // The gradient of a single channel is the rounding error of a difference that should be 0.
        if (h > 1) expect_close(actual.dx, expected.dx, close, "dx" + size);
      }
    }
  }
}

TEST_P(LayerNormTypes, GradientMayReplaceItsInputs) {
  for (const bool with_residual : {true, false}) {
    for (const bool rms : {false, true}) {
      NormTensors apart = random_norm(40, 65, rms);
      if (!with_residual) apart.residual_gradient.clear();
      NormTensors in_place = apart;
      compute(GetParam(), apart);
      compute(GetParam(), in_place, 2, true);
      EXPECT_EQ(in_place.dx, apart.dx);
      EXPECT_EQ(in_place.dweight, apart.dweight);
    }
  }
}

TEST_P(LayerNormTypes, AnyNumberOfThreadsGivesTheSameBits) {
  for (const bool rms : {false, true}) {
    NormTensors one = random_norm(300, 700, rms), two = one, three = one;
    compute(GetParam(), one, 1);
    compute(GetParam(), two, 2);
    compute(GetParam(), three, 3);
    for (const NormTensors* other : {&two, &three}) {
      EXPECT_EQ(one.y, other->y);
      EXPECT_EQ(one.dx, other->dx);
      EXPECT_EQ(one.dweight, other->dweight);
      EXPECT_EQ(one.dbias, other->dbias);
    }
  }
}

TEST(LayerNorm, BackwardMatchesFiniteDifference) {
  TRIREME_NEEDS_FP64_KERNELS();
  for (const bool rms : {false, true}) {
    NormTensors t = random_norm(4, 6, rms);
    t.residual_gradient.clear();
    compute(DType::fp64, t);
    NormTensors computed = t;
    for (double& g : computed.dweight) g -= 1;  // remove the initial value
    for (double& g : computed.dbias) g -= 1;
    const auto loss = [&] {
      compute(DType::fp64, t, 1);
      return std::inner_product(t.y.begin(), t.y.end(), t.dy.begin(), 0.0);
    };
    expect_derivative(t.x, computed.dx, loss, "dx");
    expect_derivative(t.weight, computed.dweight, loss, "dweight");
    expect_derivative(t.bias, computed.dbias, loss, "dbias");
  }
}

void expect_parts_of_bias_dropout_add_norm(DType dtype, std::int64_t h) {
  const auto backend = test::make_backend(2);
  Backend& b = *backend;
  Stream& stream = b.compute_stream();
  const std::int64_t s = 7, batch = 3;
  const Shape shape{s, batch, h};
  const Tensor samples = samples_tensor(b, sample_numbers);
  const Tensor x = random_tensor(b, dtype, shape, 1), residual = random_tensor(b, dtype, shape, 2);
  const Tensor bias = random_tensor(b, dtype, {h}, 3), weight = random_tensor(b, dtype, {h}, 4);
  const Tensor norm_bias = random_tensor(b, dtype, {h}, 5);
  const std::vector<double> x_values = values_of(b, x), bias_values = values_of(b, bias);
  for (const bool rms : {false, true}) {  // RMSNorm without the bias of the branch, as Llama has it
    for (const double probability : {0.0, 0.4}) {
      const TensorView branch_bias = rms ? TensorView() : bias.view();
      const TensorView shift = rms ? TensorView() : norm_bias.view();
      Dropout dropout(probability, 1234, 5, DropoutSite::mlp_output, samples.view().as<std::int64_t>());
      dropout.positions = {14};  // the third shard of a sequence
      std::vector<double> expected = values_of(b, residual);
      for (std::int64_t i = 0; i < s * batch * h; ++i) {
        const std::int64_t channel = i % h, sample = i / h % batch, position = 14 + i / h / batch;
        if (!dropout.enabled() || dropout.keeps(dropout.key, sample_numbers[sample], position, channel)) {
          expected[i] += (x_values[i] + (rms ? 0 : bias_values[channel])) * static_cast<double>(dropout.scale);
        }
      }
      const Tensor sum = poisoned_tensor(b, dtype, shape), y = poisoned_tensor(b, dtype, shape);
      const Tensor y_of_sum = poisoned_tensor(b, dtype, shape);
      const DType accumulation = accumulation_type(dtype);
      const Tensor mean = poisoned_tensor(b, accumulation, {s * batch}),
                   rstd = poisoned_tensor(b, accumulation, {s * batch});
      const NormStatistics statistics{rms ? TensorView() : mean.view(), rstd};
      const NormWeight factors(weight, rms ? 1 : 0);
      b.norm().bias_dropout_add_norm(stream, x, branch_bias, residual, dropout, factors, shift, epsilon, sum, y,
                                     statistics);
      expect_close(values_of(b, sum), expected, tolerance(dtype, Operation::elementwise), "sum");
      b.norm().normalise(stream, sum, factors, shift, epsilon, y_of_sum, statistics);
      EXPECT_EQ(values_of(b, y), values_of(b, y_of_sum));

      // The sum may replace an input.
      for (const bool over_x : {true, false}) {
        const Tensor x_copy = make_tensor(b, dtype, shape, x_values);
        const Tensor residual_copy = make_tensor(b, dtype, shape, values_of(b, residual));
        const TensorView to = over_x ? x_copy.view() : residual_copy.view();
        b.norm().bias_dropout_add_norm(stream, x_copy, branch_bias, residual_copy, dropout, factors, shift, epsilon, to,
                                       y, statistics);
        EXPECT_EQ(values_of(b, to), values_of(b, sum));
        EXPECT_EQ(values_of(b, y), values_of(b, y_of_sum));
      }
    }
  }
}

TEST_P(LayerNormTypes, BiasDropoutAddNormIsItsParts) {
  for (const std::int64_t h : {70, 1096, 1999, 3104}) {
    SCOPED_TRACE(h);
    expect_parts_of_bias_dropout_add_norm(GetParam(), h);
  }
}

}  // namespace
}  // namespace trireme
