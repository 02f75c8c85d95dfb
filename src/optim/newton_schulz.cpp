#include "src/optim/newton_schulz.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace trireme::optim {
namespace {

using Coefficients = std::array<double, 3>;
constexpr Coefficients quintic[] = {{4.0848, -6.8946, 2.9270},
                                    {3.9505, -6.3029, 2.6377},
                                    {3.7418, -5.5913, 2.3037},
                                    {2.8769, -3.1427, 1.2046},
                                    {2.8366, -3.0525, 1.2012}};
constexpr Coefficients simple[] = {{3.4445, -4.7750, 2.0315}};

}  // namespace

NewtonSchulz::NewtonSchulz(Backend& backend, DType dtype, std::int64_t max_elements, std::int64_t max_side,
                           const NewtonSchulzOptions& options)
    : backend_(backend),
      options_(options),
      products_(options.products == NewtonSchulzProducts::device && !backend.memory_is_host() ? DType::bf16 : dtype),
      squares_(backend, DType::fp64, {1}),
      product_(backend, products_, {max_elements}),
      gram_(backend, products_, {max_side * max_side}),
      square_(backend, products_, {max_side * max_side}) {
  TRIREME_CHECK(options.steps >= 1, ConfigError, "<muon_num_ns_steps> {} must be at least 1", options.steps);
  if (products_ == dtype) return;
  rounded_ = Tensor(backend, products_, {max_elements});
  gradient_ = Tensor(backend, accumulation_type(products_), {max_side * max_side});
}

void NewtonSchulz::operator()(TensorView x) {
  Stream& stream = backend_.compute_stream();
  ElementwiseKernels& elementwise = backend_.elementwise();
  constexpr double least_norm = 1e-7;
  elementwise.fill(stream, 0, squares_);
  backend_.reduce().sum_squares(stream, x, squares_);
  elementwise.divide_by_norm(stream, squares_, least_norm, x);
  if (products_ == x.dtype()) return iterate(x);
  const TensorView rounded = rounded_.view().flat(0, x.numel()).reshape(x.shape());
  elementwise.convert(stream, x, rounded);
  iterate(rounded);
  elementwise.convert(stream, rounded, x);
}

void NewtonSchulz::iterate(TensorView x) {
  Stream& stream = backend_.compute_stream();
  ElementwiseKernels& elementwise = backend_.elementwise();
  GemmKernels& gemm = backend_.gemm();
  const std::int64_t rows = x.shape()[0], columns = x.shape()[1], side = std::min(rows, columns);
  const auto square_in = [&](const Tensor& tensor) { return tensor.view().flat(0, side * side).reshape({side, side}); };
  const TensorView gram = square_in(gram_), square = square_in(square_);
  const TensorView gradient = products_ == accumulation_type(products_) ? gram : square_in(gradient_);
  const TensorView product = product_.view().flat(0, x.numel()).reshape(x.shape());
  const bool is_simple = options_.coefficients == NewtonSchulzCoefficients::simple;
  const auto sets = is_simple ? std::span<const Coefficients>(simple) : quintic;
  for (int step = 0; step < options_.steps; ++step) {
    const auto& [a, b, c] = sets[static_cast<std::size_t>(step) % sets.size()];
    if (rows <= columns) {
      gemm.linear(stream, x, x, {}, Activation::none, {}, gram);
    } else {
      elementwise.fill(stream, 0, gradient);
      gemm.linear_backward_weight(stream, x, x, gradient, {});
      if (gradient.data() != gram.data()) elementwise.convert(stream, gradient, gram);
    }
    gemm.linear(stream, gram, gram, {}, Activation::none, {}, square);  // A is symmetric
    elementwise.scale(stream, c, square);
    elementwise.scale(stream, b, gram);
    elementwise.add(stream, gram, square);
    if (rows <= columns) {
      gemm.linear_backward_input(stream, square, x, Activation::none, {}, product);
    } else {
      gemm.linear(stream, x, square, {}, Activation::none, {}, product);
    }
    elementwise.scale(stream, a, x);
    elementwise.add(stream, product, x);
  }
}

}  // namespace trireme::optim
