#include "src/optim/newton_schulz.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace trireme::optim {
namespace {

using Coefficients = std::array<double, 3>;
constexpr Coefficients quintic[] = {{4.0848, -6.8946, 2.9270},
                                    {3.9505, -6.3029, 2.6377},
                                    {3.7418, -5.5913, 2.3037},
                                    {2.8769, -3.1427, 1.2046},
                                    {2.8366, -3.0525, 1.2012}};
constexpr Coefficients simple[] = {{3.4445, -4.7750, 2.0315}};

std::int64_t side_of(const Shape& batch) { return std::min(batch[1], batch[2]); }

}  // namespace

DType NewtonSchulz::type_of(const Backend& backend, DType dtype, NewtonSchulzProducts products) {
  const bool narrow = products == NewtonSchulzProducts::device && !backend.memory_is_host() && size_of(dtype) == 2;
  return narrow ? DType::bf16 : accumulation_type(dtype);
}

NewtonSchulz::NewtonSchulz(Backend& backend, DType dtype, std::span<const Shape> batches,
                           const NewtonSchulzOptions& options)
    : backend_(backend), options_(options) {
  TRIREME_CHECK(options.steps >= 1, ConfigError, "<muon_num_ns_steps> {} must be at least 1", options.steps);
  std::int64_t matrices = 1, elements = 1, squares = 1;
  for (const Shape& batch : batches) {
    matrices = std::max(matrices, batch[0]);
    elements = std::max(elements, batch.numel());
    squares = std::max(squares, batch[0] * side_of(batch) * side_of(batch));
  }
  squares_ = Tensor(backend, DType::fp64, {matrices});
  other_ = Tensor(backend, dtype, {elements});
  gram_ = Tensor(backend, dtype, {squares});
  polynomial_ = Tensor(backend, dtype, {squares});
}

void NewtonSchulz::operator()(TensorView batch) {
  Stream& stream = backend_.compute_stream();
  GemmKernels& gemm = backend_.gemm();
  const std::int64_t matrices = batch.shape()[0], side = side_of(batch.shape()), numel = batch.numel() / matrices;
  const TensorView squares = squares_.view().flat(0, matrices);
  backend_.elementwise().fill(stream, 0, squares);
  for (std::int64_t i = 0; i < matrices; ++i) {
    backend_.reduce().sum_squares(stream, batch.flat(i * numel, numel), squares.flat(i, 1));
  }
  const auto square_in = [&](const Tensor& tensor) {
    return tensor.view().flat(0, matrices * side * side).reshape({matrices, side, side});
  };
  const TensorView gram = square_in(gram_), polynomial = square_in(polynomial_);
  // Each step reads one array and writes the other; the last one writes `batch`.
  TensorView x = batch, next = other_.view().flat(0, batch.numel()).reshape(batch.shape());
  if (options_.steps % 2 == 1) std::swap(x, next);
  constexpr double least_norm = 1e-7;
  backend_.elementwise().divide_by_norms(stream, squares, least_norm, batch, x);
  const bool wide = batch.shape()[1] <= batch.shape()[2];
  const bool is_simple = options_.coefficients == NewtonSchulzCoefficients::simple;
  const auto sets = is_simple ? std::span<const Coefficients>(simple) : quintic;
  for (int step = 0; step < options_.steps; ++step) {
    const auto& [a, b, c] = sets[static_cast<std::size_t>(step) % sets.size()];
    gemm.batched(stream, {.a_transposed = !wide, .b_transposed = wide}, x, x, {}, gram);
    gemm.batched(stream, {.alpha = c, .beta = b}, gram, gram, gram, polynomial);
    gemm.batched(stream, {.beta = a}, wide ? polynomial : x, wide ? x : polynomial, x, next);
    std::swap(x, next);
  }
}

}  // namespace trireme::optim
