#include "src/optim/newton_schulz.hpp"

#include <algorithm>
#include <array>
#include <cmath>
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

std::span<const Coefficients> coefficients_of(NewtonSchulzCoefficients set) {
  if (set == NewtonSchulzCoefficients::simple) return simple;
  return quintic;
}

}  // namespace

NewtonSchulz::NewtonSchulz(Backend& backend, DType dtype, std::int64_t max_elements, std::int64_t max_side,
                           const NewtonSchulzOptions& options)
    : backend_(backend),
      options_(options),
      norm_(backend, DType::fp64, {1}),
      product_(backend, dtype, {max_elements}),
      gram_(backend, dtype, {max_side * max_side}),
      square_(backend, dtype, {max_side * max_side}) {
  TRIREME_CHECK(options.steps >= 1, ConfigError, "<muon_num_ns_steps> {} must be at least 1", options.steps);
}

void NewtonSchulz::operator()(TensorView x) {
  Stream& stream = backend_.compute_stream();
  ElementwiseKernels& elementwise = backend_.elementwise();
  GemmKernels& gemm = backend_.gemm();
  elementwise.fill(stream, 0, norm_);
  backend_.reduce().sum_squares(stream, x, norm_);
  double squares = 0;
  backend_.copy_to_host(stream, norm_, TensorView(&squares, {1}));
  stream.synchronize();
  constexpr double least_norm = 1e-7;
  elementwise.scale(stream, 1 / std::max(std::sqrt(squares), least_norm), x);

  const std::int64_t rows = x.shape()[0], columns = x.shape()[1], side = std::min(rows, columns);
  const TensorView gram = gram_.view().flat(0, side * side).reshape({side, side});
  const TensorView square = square_.view().flat(0, side * side).reshape({side, side});
  const TensorView product = product_.view().flat(0, x.numel()).reshape(x.shape());
  const std::span<const Coefficients> sets = coefficients_of(options_.coefficients);
  for (int step = 0; step < options_.steps; ++step) {
    const auto& [a, b, c] = sets[static_cast<std::size_t>(step) % sets.size()];
    if (rows <= columns) {
      gemm.linear(stream, x, x, {}, Activation::none, {}, gram);
    } else {
      elementwise.fill(stream, 0, gram);
      gemm.linear_backward_weight(stream, x, x, gram, {});
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
