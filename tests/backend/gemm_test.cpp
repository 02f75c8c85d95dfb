#include "src/backend/kernels/gemm.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "tests/support/activations.hpp"
#include "tests/support/finite_difference.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/support/test_backend.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme {
namespace {

using namespace test;

struct Extents {
  std::int64_t n, in, out;
};
// Nothing, one, around a vector, more than one tile in every direction.
constexpr Extents extents_list[] = {{0, 31, 33},  {31, 0, 33},     {31, 33, 0},    {1, 1, 1},      {1, 33, 31},
                                    {31, 1, 33},  {33, 31, 1},     {33, 31, 1025}, {1025, 33, 31}, {31, 1025, 33},
                                    {64, 64, 64}, {300, 530, 600}, {7, 45, 600},   {16, 600, 45}};

/// The products as their declarations write them.
struct Reference {
  Extents e;
  std::vector<double> x, w, dy;

  double z(std::int64_t i, std::int64_t o) const {
    double sum = 0;
    for (std::int64_t k = 0; k < e.in; ++k) sum += x[i * e.in + k] * w[o * e.in + k];
    return sum;
  }
  double dx(std::int64_t i, std::int64_t k) const {
    double sum = 0;
    for (std::int64_t o = 0; o < e.out; ++o) sum += dy[i * e.out + o] * w[o * e.in + k];
    return sum;
  }
  double dw(std::int64_t o, std::int64_t k) const {
    double sum = 0;
    for (std::int64_t i = 0; i < e.n; ++i) sum += dy[i * e.out + o] * x[i * e.in + k];
    return sum;
  }
};

std::vector<double> table(std::int64_t rows, std::int64_t columns,
                          const std::function<double(std::int64_t, std::int64_t)>& element) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) values.push_back(element(i, j));
  }
  return values;
}

class Gemm : public KernelTest {
 protected:
  Tensor x(const Extents& e) { return random_tensor(b(), dtype(), {e.n, e.in}, 1); }
  Tensor w(const Extents& e) { return random_tensor(b(), dtype(), {e.out, e.in}, 2, -0.3, 0.3); }
  Tensor dy(const Extents& e) { return random_tensor(b(), dtype(), {e.n, e.out}, 3); }
  Reference reference(const Extents& e) {
    return {e, values_of(b(), x(e)), values_of(b(), w(e)), values_of(b(), dy(e))};
  }
  static std::string name(const Extents& e) { return fmt::format("n {}, in {}, out {}", e.n, e.in, e.out); }
};
INSTANTIATE_TEST_SUITE_P(Types, Gemm, testing::ValuesIn(kernel_types()), name_of_type);

TEST_P(Gemm, WorksOutAHandMadeCase) {
  const Tensor inputs = make_tensor(b(), dtype(), {2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor weights = make_tensor(b(), dtype(), {2, 3}, {1, 0, -1, 2, 1, 0});
  const Tensor bias = make_tensor(b(), dtype(), {2}, {10, 20});
  const Tensor y = poisoned_tensor(b(), dtype(), {2, 2});
  b().gemm().linear(stream(), inputs, weights, bias, Activation::none, {}, y);
  EXPECT_EQ(values_of(b(), y), (std::vector<double>{8, 24, 8, 33}));

  const Tensor gradient = make_tensor(b(), dtype(), {2, 2}, {1, 2, 3, 4});
  const Tensor dx = poisoned_tensor(b(), dtype(), {2, 3});
  b().gemm().linear_backward_input(stream(), gradient, weights, Activation::none, {}, dx);
  EXPECT_EQ(values_of(b(), dx), (std::vector<double>{5, 2, -1, 11, 4, -3}));

  const Tensor dw = make_tensor(b(), accumulation(), {2, 3}, {100, 0, 0, 0, 0, 100});
  const Tensor dbias = make_tensor(b(), accumulation(), {2}, {1, 2});
  b().gemm().linear_backward_weight(stream(), gradient, inputs, dw, dbias);
  EXPECT_EQ(values_of(b(), dw), (std::vector<double>{113, 17, 21, 18, 24, 130}));
  EXPECT_EQ(values_of(b(), dbias), (std::vector<double>{5, 8}));
}

TEST_P(Gemm, ForwardMatchesTheDefinitionAtAllSizes) {
  for (const Extents& e : extents_list) {
    const Reference r = reference(e);
    const Tensor bias = random_tensor(b(), dtype(), {e.out}, 4);
    const std::vector<double> bias_values = values_of(b(), bias);
    const auto products = table(e.n, e.out, [&](auto i, auto o) { return r.z(i, o); });
    for (const Activation activation : all_activations) {
      for (const bool with_bias : {false, true}) {
        for (const bool keep : {false, true}) {
          const Tensor y = poisoned_tensor(b(), dtype(), {e.n, e.out});
          const Tensor z = keep ? poisoned_tensor(b(), dtype(), {e.n, e.out}) : Tensor();
          b().gemm().linear(stream(), x(e), w(e), with_bias ? bias.view() : TensorView(), activation, z, y);
          std::vector<double> expected = products;
          for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += with_bias ? bias_values[i % e.out] : 0;
          if (keep && activation != Activation::none) {
            expect_close(values_of(b(), z), expected, tolerance(dtype(), Operation::sum), "z, " + name(e));
          }
          for (double& value : expected) value = activated(activation, value);
          expect_close(values_of(b(), y), expected, tolerance(dtype(), Operation::sum), "y, " + name(e));
        }
      }
    }
  }
}

TEST_P(Gemm, BackwardInputMatchesTheDefinitionAtAllSizes) {
  for (const Extents& e : extents_list) {
    const Reference r = reference(e);
    const auto products = table(e.n, e.in, [&](auto i, auto k) { return r.dx(i, k); });
    const Tensor z = random_tensor(b(), dtype(), {e.n, e.in}, 5, -3, 3);
    const std::vector<double> z_values = values_of(b(), z);
    for (const Activation activation : all_activations) {
      const Tensor dx = poisoned_tensor(b(), dtype(), {e.n, e.in});
      b().gemm().linear_backward_input(stream(), dy(e), w(e), activation, z, dx);
      std::vector<double> expected = products;
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] *= activation_slope(activation, z_values[i]);
      expect_close(values_of(b(), dx), expected, tolerance(dtype(), Operation::sum), "dx, " + name(e));
    }
  }
}

TEST_P(Gemm, BackwardWeightAccumulatesAtAllSizes) {
  for (const Extents& e : extents_list) {
    const Reference r = reference(e);
    for (const bool with_bias : {false, true}) {
      const Tensor dw = random_tensor(b(), accumulation(), {e.out, e.in}, 6);
      const Tensor dbias = random_tensor(b(), accumulation(), {e.out}, 7);
      std::vector<double> expected = values_of(b(), dw), expected_bias = values_of(b(), dbias);
      const auto products = table(e.out, e.in, [&](auto o, auto k) { return r.dw(o, k); });
      for (std::size_t i = 0; i < products.size(); ++i) expected[i] += products[i];
      for (std::int64_t i = 0; with_bias && i < e.n; ++i) {
        for (std::int64_t o = 0; o < e.out; ++o) expected_bias[o] += r.dy[i * e.out + o];
      }
      b().gemm().linear_backward_weight(stream(), dy(e), x(e), dw, with_bias ? dbias.view() : TensorView());
      expect_close(values_of(b(), dw), expected, tolerance(accumulation(), Operation::sum), "dw, " + name(e));
      expect_close(values_of(b(), dbias), expected_bias, tolerance(accumulation(), Operation::sum),
                   "dbias, " + name(e));
    }
  }
}

/// A sum that begins at 0, and a product that overwrites what is no number. Only zeros may differ, in their sign.
TEST_P(Gemm, AWeightGradientThatOverwritesEqualsASumFromZero) {
  for (const Extents& e : extents_list) {
    const Tensor sum = make_tensor(b(), accumulation(), {e.out, e.in}, std::vector<double>(e.out * e.in, 0)),
                 dw = poisoned_tensor(b(), accumulation(), {e.out, e.in}),
                 dbias = random_tensor(b(), accumulation(), {e.out}, 7),
                 bias_sum = random_tensor(b(), accumulation(), {e.out}, 7);
    b().gemm().linear_backward_weight(stream(), dy(e), x(e), sum, bias_sum);
    b().gemm().linear_backward_weight(stream(), dy(e), x(e), dw, dbias, ProductSum::overwrite);
    EXPECT_EQ(values_of(b(), dw), values_of(b(), sum)) << name(e);
    EXPECT_EQ(values_of(b(), dbias), values_of(b(), bias_sum)) << name(e);
    // The next one adds.
    for (const Tensor* tensor : {&sum, &dw}) b().gemm().linear_backward_weight(stream(), dy(e), x(e), *tensor, {});
    EXPECT_EQ(values_of(b(), dw), values_of(b(), sum)) << name(e);
  }
}

/// Every pair of transpositions, with and without c; matrices whose size is not a multiple of a vector.
TEST_P(Gemm, BatchedProductsMatchTheDefinition) {
  struct Batch {
    std::int64_t count, m, n, k;
  };
  for (const auto& [count, m, n, k] : {Batch{1, 1, 1, 1}, {3, 7, 5, 9}, {2, 33, 31, 300}, {2, 270, 530, 40}}) {
    const Tensor c = random_tensor(b(), dtype(), {count, m, n}, 3);
    const std::vector<double> c_values = values_of(b(), c);
    for (const bool a_transposed : {false, true}) {
      for (const bool b_transposed : {false, true}) {
        const Tensor left = random_tensor(b(), dtype(), a_transposed ? Shape{count, k, m} : Shape{count, m, k}, 1),
                     right = random_tensor(b(), dtype(), b_transposed ? Shape{count, n, k} : Shape{count, k, n}, 2);
        const std::vector<double> a_values = values_of(b(), left), b_values = values_of(b(), right);
        const auto sum = [&, k = k, m = m, n = n](std::int64_t i, std::int64_t row, std::int64_t column) {
          double value = 0;
          for (std::int64_t e = 0; e < k; ++e) {
            value += a_values[i * m * k + (a_transposed ? e * m + row : row * k + e)] *
                     b_values[i * k * n + (b_transposed ? column * k + e : e * n + column)];
          }
          return value;
        };
        for (const double beta : {0.0, -0.75}) {
          const Tensor d = poisoned_tensor(b(), dtype(), {count, m, n});
          const BatchedProduct product{a_transposed, b_transposed, 1.5, beta};
          b().gemm().batched(stream(), product, left, right, beta == 0 ? TensorView() : c.view(), d);
          std::vector<double> expected;
          for (std::int64_t i = 0; i < count * m * n; ++i) {
            expected.push_back(1.5 * sum(i / (m * n), i / n % m, i % n) + beta * c_values[i]);
          }
          expect_close(values_of(b(), d), expected, tolerance(dtype(), Operation::sum),
                       fmt::format("{} products of {} x {} x {}, beta {}", count, m, n, k, beta));
        }
      }
    }
  }
}

TEST_P(Gemm, BitsDoNotDependOnThreads) {
  const Extents e{530, 300, 700};
  std::vector<std::vector<std::byte>> first;
  for (const int threads : {1, 2, 3}) {
    backend_ = test::make_backend(threads);
    const Tensor z = poisoned_tensor(b(), dtype(), {e.n, e.out}), y = poisoned_tensor(b(), dtype(), {e.n, e.out});
    const Tensor dx = poisoned_tensor(b(), dtype(), {e.n, e.in});
    const Tensor dw = random_tensor(b(), accumulation(), {e.out, e.in}, 6);
    const Tensor dbias = random_tensor(b(), accumulation(), {e.out}, 7);
    const Tensor grouped_y = poisoned_tensor(b(), dtype(), {e.n, e.out});
    const Tensor grouped_dw = random_tensor(b(), accumulation(), {2 * e.out, e.in}, 6);
    const Tensor weights = w(e);
    const std::vector<std::int64_t> rows = {500, 30};
    const std::vector<TensorView> w_of = {weights, weights},
                                  dw_of = {grouped_dw.view().rows(0, e.out), grouped_dw.view().rows(e.out, e.out)};
    b().gemm().grouped_linear(stream(), rows, x(e), w_of, grouped_y);
    b().gemm().grouped_backward_weight(stream(), rows, dy(e), x(e), dw_of);
    b().gemm().linear(stream(), x(e), w(e), random_tensor(b(), dtype(), {e.out}, 4), Activation::gelu_tanh, z, y);
    b().gemm().linear_backward_input(stream(), dy(e), w(e), Activation::gelu_tanh, x(e), dx);
    b().gemm().linear_backward_weight(stream(), dy(e), x(e), dw, dbias);
    const Tensor batched_y = poisoned_tensor(b(), dtype(), {1, e.n, e.out});
    b().gemm().batched(stream(), {.b_transposed = true}, x(e).view().reshape({1, e.n, e.in}),
                       weights.view().reshape({1, e.out, e.in}), {}, batched_y);
    std::vector<std::vector<std::byte>> bits;
    for (const TensorView tensor : {z.view(), y.view(), dx.view(), dw.view(), dbias.view(), grouped_y.view(),
                                    grouped_dw.view(), batched_y.view()}) {
      bits.push_back(bytes_of(b(), tensor));
    }
    if (first.empty()) first = bits;
    EXPECT_TRUE(bits == first) << threads << " threads";
  }
}

/// Grouped products, and the same one after another.
TEST_P(Gemm, GroupedProductsHaveTheBitsOfSingleOnes) {
  struct Groups {
    std::vector<std::int64_t> rows;
    std::int64_t in, out;
  };
  // Empty groups; several tiles a group; terms split between tasks, in more groups than are computed together.
  for (const auto& [rows, in, out] :
       {Groups{{0, 3, 0, 1, 70, 0}, 33, 31}, Groups{{300, 1, 600}, 40, 530},
        Groups{{600, 0, 900, 30, 2000, 700}, 24, 40}, Groups{{5, 0}, 0, 3}, Groups{{0}, 3, 5}}) {
    const std::int64_t all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    const Tensor inputs = random_tensor(b(), dtype(), {all, in}, 1),
                 gradients = random_tensor(b(), dtype(), {all, out}, 2);
    std::vector<Tensor> weights, dw, single_dw;
    std::vector<TensorView> w_views, dw_views;
    std::vector<ProductSum> sums;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      weights.push_back(random_tensor(b(), dtype(), {out, in}, 10 + i));
      // Every second one is overwritten.
      sums.push_back(i % 2 == 0 ? ProductSum::add : ProductSum::overwrite);
      dw.push_back(random_tensor(b(), accumulation(), {out, in}, 20 + i));
      single_dw.push_back(random_tensor(b(), accumulation(), {out, in}, 20 + i));
      w_views.push_back(weights.back());
      dw_views.push_back(dw.back());
    }
    const Tensor y = poisoned_tensor(b(), dtype(), {all, out}), dx = poisoned_tensor(b(), dtype(), {all, in});
    b().gemm().grouped_linear(stream(), rows, inputs, w_views, y);
    b().gemm().grouped_backward_input(stream(), rows, gradients, w_views, dx);
    b().gemm().grouped_backward_weight(stream(), rows, gradients, inputs, dw_views, sums);
    const Tensor single_y = poisoned_tensor(b(), dtype(), {all, out}),
                 single_dx = poisoned_tensor(b(), dtype(), {all, in});
    std::int64_t first = 0;
    for (std::size_t i = 0; i < rows.size(); first += rows[i], ++i) {
      const TensorView x_rows = inputs.view().rows(first, rows[i]), dy_rows = gradients.view().rows(first, rows[i]);
      b().gemm().linear(stream(), x_rows, weights[i], {}, Activation::none, {}, single_y.view().rows(first, rows[i]));
      b().gemm().linear_backward_input(stream(), dy_rows, weights[i], Activation::none, {},
                                       single_dx.view().rows(first, rows[i]));
      if (rows[i] > 0) b().gemm().linear_backward_weight(stream(), dy_rows, x_rows, single_dw[i], {}, sums[i]);
      EXPECT_EQ(bytes_of(b(), dw[i]), bytes_of(b(), single_dw[i])) << "group " << i << " of " << rows.size();
    }
    EXPECT_EQ(bytes_of(b(), y), bytes_of(b(), single_y)) << rows.size() << " groups";
    EXPECT_EQ(bytes_of(b(), dx), bytes_of(b(), single_dx)) << rows.size() << " groups";
  }
}

TEST_P(Gemm, TakesInputsOfThreeDimensions) {
  const Tensor inputs = random_tensor(b(), dtype(), {3, 2, 5}, 1), weights = random_tensor(b(), dtype(), {4, 5}, 2);
  const Tensor y = poisoned_tensor(b(), dtype(), {3, 2, 4}), flat = poisoned_tensor(b(), dtype(), {6, 4});
  b().gemm().linear(stream(), inputs, weights, {}, Activation::none, {}, y);
  b().gemm().linear(stream(), inputs.view().reshape({6, 5}), weights, {}, Activation::none, {}, flat);
  EXPECT_EQ(bytes_of(b(), y), bytes_of(b(), flat));
}

TEST(GemmGradient, MatchesFiniteDifference) {
  const auto backend = test::make_backend(1);
  Backend& b = *backend;
  Stream& stream = b.compute_stream();
  const Extents e{5, 7, 6};
  // loss = sum of dy (activation(p) w^T + bias), as a function of p, w and bias.
  std::vector<double> p = random_values(e.n * e.in, 1, -3, 3), w = random_values(e.out * e.in, 2),
                      bias = random_values(e.out, 3);
  const std::vector<double> g = random_values(e.n * e.out, 4);
  for (const Activation activation : all_activations) {
    const auto input = [&] {
      std::vector<double> x = p;
      for (double& value : x) value = activated(activation, value);
      return x;
    };
    const auto loss = [&] {
      const Tensor y = poisoned_tensor(b, DType::fp64, {e.n, e.out});
      b.gemm().linear(stream, make_tensor(b, DType::fp64, {e.n, e.in}, input()),
                      make_tensor(b, DType::fp64, {e.out, e.in}, w), make_tensor(b, DType::fp64, {e.out}, bias),
                      Activation::none, {}, y);
      const std::vector<double> values = values_of(b, y);
      return std::inner_product(values.begin(), values.end(), g.begin(), 0.0);
    };
    const Tensor dy = make_tensor(b, DType::fp64, {e.n, e.out}, g);
    const Tensor dp = poisoned_tensor(b, DType::fp64, {e.n, e.in});
    b.gemm().linear_backward_input(stream, dy, make_tensor(b, DType::fp64, {e.out, e.in}, w), activation,
                                   make_tensor(b, DType::fp64, {e.n, e.in}, p), dp);
    expect_derivative(p, values_of(b, dp), loss, "dp");

    const Tensor dw = make_tensor(b, DType::fp64, {e.out, e.in}, std::vector<double>(w.size()));
    const Tensor dbias = make_tensor(b, DType::fp64, {e.out}, std::vector<double>(bias.size()));
    b.gemm().linear_backward_weight(stream, dy, make_tensor(b, DType::fp64, {e.n, e.in}, input()), dw, dbias);
    expect_derivative(w, values_of(b, dw), loss, "dw");
    expect_derivative(bias, values_of(b, dbias), loss, "dbias");
  }
}

TEST(GemmChecks, RefuseShapesAndTypesThatDoNotFit) {
  const auto backend = test::make_backend(1);
  Backend& b = *backend;
  Stream& stream = b.compute_stream();
  const auto tensor = [&](const Shape& shape, DType dtype = DType::bf16) { return random_tensor(b, dtype, shape, 1); };
  GemmKernels& gemm = b.gemm();
  const Activation none = Activation::none;
  EXPECT_THROW(gemm.linear(stream, tensor({2, 3}), tensor({4, 5}), {}, none, {}, tensor({2, 4})), ShapeError);
  EXPECT_THROW(gemm.linear(stream, tensor({2, 3}), tensor({4, 3}), {}, none, {}, tensor({3, 4})), ShapeError);
  EXPECT_THROW(gemm.linear(stream, tensor({2, 3}), tensor({4, 3}), tensor({3}), none, {}, tensor({2, 4})), ShapeError);
  EXPECT_THROW(gemm.linear(stream, tensor({2, 3}), tensor({4, 3}, DType::fp32), {}, none, {}, tensor({2, 4})),
               ShapeError);
  EXPECT_THROW(gemm.linear_backward_input(stream, tensor({2, 4}), tensor({4, 3}), none, {}, tensor({2, 4})),
               ShapeError);
  EXPECT_THROW(
      gemm.linear_backward_input(stream, tensor({2, 4}), tensor({4, 3}), Activation::gelu_erf, {}, tensor({2, 3})),
      ShapeError);
  EXPECT_THROW(gemm.linear_backward_weight(stream, tensor({2, 4}), tensor({2, 3}), tensor({4, 3}), {}), ShapeError);
  const auto batched = [&](const BatchedProduct& product, const Shape& c) {
    gemm.batched(stream, product, tensor({2, 3, 4}), tensor({2, 4, 5}), tensor(c), tensor({2, 3, 5}));
  };
  EXPECT_NO_THROW(batched({.beta = 1}, {2, 3, 5}));
  EXPECT_THROW(batched({.beta = 1}, {2, 5, 3}), ShapeError);
  EXPECT_THROW(batched({.a_transposed = true}, {2, 3, 5}), ShapeError);
  EXPECT_THROW(batched({.b_transposed = true}, {2, 3, 5}), ShapeError);
  EXPECT_THROW(gemm.linear_backward_weight(stream, tensor({2, 4}), tensor({3, 3}), tensor({4, 3}, DType::fp32), {}),
               ShapeError);
  const Tensor weight = tensor({4, 3});
  const std::vector<TensorView> weights = {weight, weight};
  const std::vector<std::int64_t> rows = {2, 1}, other_rows = {2, 2}, three = {1, 1, 1};
  for (const auto& wrong : {other_rows, three})
    EXPECT_THROW(gemm.grouped_linear(stream, wrong, tensor({3, 3}), weights, tensor({3, 4})), ShapeError);
  EXPECT_THROW(gemm.grouped_linear(stream, rows, tensor({3, 5}), weights, tensor({3, 4})), ShapeError);
  EXPECT_THROW(gemm.grouped_backward_input(stream, rows, tensor({3, 4}), weights, tensor({3, 4})), ShapeError);
  EXPECT_THROW(gemm.grouped_backward_weight(stream, rows, tensor({3, 4}), tensor({3, 3}), weights), ShapeError);
}

/// x [rows, columns] rounded in blocks of rows and columns, each with a scale of its own.
std::vector<double> rounded(const std::vector<double>& x, std::int64_t columns, std::int64_t block_rows,
                            std::int64_t block_columns, Fp8Format format, double amax = 0) {
  std::map<std::pair<std::int64_t, std::int64_t>, double> largest;
  const auto block_of = [&](std::size_t i) {
    const auto at = static_cast<std::int64_t>(i);
    return std::pair{at / columns / block_rows, at % columns / block_columns};
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    double& size = largest[block_of(i)];
    size = amax > 0 ? amax : std::max(size, std::abs(x[i]));
  }
  std::vector<double> result;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float scale = power_of_two(fp8_scale_exponent(static_cast<float>(largest[block_of(i)]), format, 1));
    result.push_back(round_to_fp8(static_cast<float>(x[i]) * scale, format) / scale);
  }
  return result;
}

TEST_P(Gemm, OperandsAreRoundedToFp8) {
  if (dtype() == DType::fp16 || !b().supports(Capability::fp8)) GTEST_SKIP() << "no products in FP8 of this type";
  const Extents e{144, 272, 160};
  const Reference exact = reference(e);
  for (const bool by_blocks : {false, true}) {
    // Rows and columns of blocks of x in the forward, of dy in both gradients, of x for the weight's, and of weights.
    const std::int64_t all = 1 << 20, side = by_blocks ? 128 : all, along = by_blocks ? 1 : all;
    const Tensor amax = make_tensor(b(), DType::fp64, {1}, {0.4});
    const Tensor seen = make_tensor(b(), DType::fp64, {1}, {0.25});
    const auto operand = [&](Fp8Format format) {
      Fp8Operand operand{.format = format, .seen = seen};
      if (!by_blocks) operand.amax = amax;
      return operand;
    };
    const double given = by_blocks ? 0 : 0.4;
    const Fp8Operand narrow = operand(Fp8Format::e4m3), wide = operand(Fp8Format::e5m2);
    const Reference forward{e, rounded(exact.x, e.in, along, side, Fp8Format::e4m3, given),
                            rounded(exact.w, e.in, side, side, Fp8Format::e4m3, given),
                            rounded(exact.dy, e.out, along, side, Fp8Format::e5m2, given)};
    const Reference weight{e, rounded(exact.x, e.in, side, along, Fp8Format::e4m3, given), exact.w,
                           rounded(exact.dy, e.out, side, along, Fp8Format::e5m2, given)};
    const Tensor y = poisoned_tensor(b(), dtype(), {e.n, e.out});
    b().gemm().linear(stream(), x(e), w(e), {}, Activation::none, {}, y, Fp8Product{narrow, narrow, 1});
    expect_close(values_of(b(), y), table(e.n, e.out, [&](auto i, auto o) { return forward.z(i, o); }),
                 tolerance(dtype(), Operation::sum), "y");
    const Tensor dx = poisoned_tensor(b(), dtype(), {e.n, e.in});
    b().gemm().linear_backward_input(stream(), dy(e), w(e), Activation::none, {}, dx, Fp8Product{wide, narrow, 1});
    expect_close(values_of(b(), dx), table(e.n, e.in, [&](auto i, auto k) { return forward.dx(i, k); }),
                 tolerance(dtype(), Operation::sum), "dx");
    const Tensor dw = poisoned_tensor(b(), accumulation(), {e.out, e.in});
    const Tensor dbias = make_tensor(b(), accumulation(), {e.out}, std::vector<double>(e.out, 1.0));
    b().gemm().linear_backward_weight(stream(), dy(e), x(e), dw, dbias, ProductSum::overwrite,
                                      Fp8Product{wide, narrow, 1});
    expect_close(values_of(b(), dw), table(e.out, e.in, [&](auto o, auto k) { return weight.dw(o, k); }),
                 tolerance(accumulation(), Operation::sum), "dw");
    // The bias' gradient is a sum of dy as it is.
    std::vector<double> sums(e.out, 1.0);
    for (std::size_t i = 0; i < exact.dy.size(); ++i) sums[i % e.out] += exact.dy[i];
    expect_close(values_of(b(), dbias), sums, tolerance(accumulation(), Operation::sum), "dbias");
    double largest = 0.25;
    for (const auto* values : {&exact.x, &exact.w, &exact.dy}) {
      for (const double value : *values)
        largest = std::max(largest, std::abs(static_cast<double>(static_cast<float>(value))));
    }
    EXPECT_EQ(values_of(b(), seen).front(), largest);
  }
}

// The bits are those of the activation's own kernel, whose result is the operand.
TEST_P(Gemm, OperandsInFp8MayBeResultsOfAnActivation) {
  if (dtype() == DType::fp16 || !b().supports(Capability::fp8)) GTEST_SKIP() << "no products in FP8 of this type";
  const Extents e{144, 272, 160};
  const Tensor amax = make_tensor(b(), DType::fp64, {1}, {0.4}), seen = make_tensor(b(), DType::fp64, {1}, {0});
  const Tensor activated(b(), dtype(), {e.n, e.in}), slopes = random_tensor(b(), dtype(), {e.n, e.out}, 9);
  const Tensor gradient(b(), dtype(), {e.n, e.out});
  b().elementwise().activate(stream(), Activation::gelu_tanh, x(e), activated);
  b().elementwise().activate_backward(stream(), Activation::gelu_erf, dy(e), slopes, gradient);
  for (const bool by_blocks : {false, true}) {
    Fp8Operand plain{.seen = seen};
    if (!by_blocks) plain.amax = amax;
    Fp8Operand input = plain, wide = plain;
    input.source = {Activation::gelu_tanh};
    wide.source = {Activation::gelu_erf, slopes};
    const auto results = [&](ConstTensorView x, ConstTensorView dy, const Fp8Operand& of_x, const Fp8Operand& of_dy) {
      const Tensor y(b(), dtype(), {e.n, e.out}), dx(b(), dtype(), {e.n, e.in});
      const Tensor dw(b(), accumulation(), {e.out, e.in});
      const Tensor dbias = make_tensor(b(), accumulation(), {e.out}, std::vector<double>(e.out, 1.0));
      b().elementwise().fill(stream(), 0, seen);
      b().gemm().linear(stream(), x, w(e), {}, Activation::none, {}, y, Fp8Product{of_x, plain});
      b().gemm().linear_backward_input(stream(), dy, w(e), Activation::none, {}, dx, Fp8Product{of_dy, plain});
      b().gemm().linear_backward_weight(stream(), dy, x, dw, dbias, ProductSum::overwrite, Fp8Product{of_dy, of_x});
      std::vector<double> all;
      for (const Tensor* tensor : {&y, &dx, &dw, &dbias, &seen}) {
        const std::vector<double> values = values_of(b(), *tensor);
        all.insert(all.end(), values.begin(), values.end());
      }
      return all;
    };
    EXPECT_EQ(results(x(e), dy(e), input, wide), results(activated, gradient, plain, plain));
  }
}

TEST_P(Gemm, MeasuresNumbersThatAreNotFiniteAsInfinite) {
  if (dtype() == DType::fp16 || !b().supports(Capability::fp8)) GTEST_SKIP() << "no products in FP8 of this type";
  const Tensor bad = make_tensor(b(), dtype(), {2, 2}, {1, std::nan(""), 2, 3});
  const Tensor y = poisoned_tensor(b(), dtype(), {2, 2});
  const Tensor amax = make_tensor(b(), DType::fp64, {1}, {3}), seen = make_tensor(b(), DType::fp64, {1}, {0});
  const Fp8Operand operand{.amax = amax, .seen = seen};
  b().gemm().linear(stream(), bad, bad, {}, Activation::none, {}, y, Fp8Product{operand, operand});
  EXPECT_TRUE(std::isinf(values_of(b(), seen).front()));
}

}  // namespace
}  // namespace trireme
