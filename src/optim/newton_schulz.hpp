#pragma once

#include <cstdint>
#include <span>

#include "src/backend/backend.hpp"

namespace trireme::optim {

/// Coefficients (a, b, c) of the Newton-Schulz steps, used in turn.
enum class NewtonSchulzCoefficients {
  quintic,  ///< five steps with growing accuracy
  simple    ///< (3.4445, -4.7750, 2.0315) in each (Jordan et al. 2024, kellerjordan.github.io/posts/muon)
};

/// Type of the products. device: bf16 in 16-bit training on GPUs, as in Jordan et al., because the result needs no more
/// precision; otherwise, and on the CPU, where bf16 is slower, that of accumulation. full: that of accumulation.
enum class NewtonSchulzProducts { device, full };

struct NewtonSchulzOptions {
  NewtonSchulzCoefficients coefficients = NewtonSchulzCoefficients::quintic;
  int steps = 5;
  NewtonSchulzProducts products = NewtonSchulzProducts::device;
};

/// Orthogonalises batches of matrices of equal shape.
class NewtonSchulz {
 public:
  /// Type of the matrices and of the products in training in `dtype`.
  static DType type_of(const Backend& backend, DType dtype, NewtonSchulzProducts products);

  /// For batches of these shapes, [matrices, rows, columns], or smaller ones.
  NewtonSchulz(Backend& backend, DType dtype, std::span<const Shape> batches, const NewtonSchulzOptions& options);

  /// Each matrix X [rows, columns] of `batch` becomes about U V^T, where X = U S V^T. X is divided by max(its Frobenius
  /// norm, 1e-7); then each step is X = a X + (b A + c A^2) X, A = X X^T; with more rows than columns X = a X + X (b A
  /// + c A^2), A = X^T X. Three batched products a step round A, b A + c A^2 and X to the matrices' type.
  /// Stream-ordered.
  void operator()(TensorView batch);

 private:
  Backend& backend_;
  NewtonSchulzOptions options_;
  Tensor squares_, other_, gram_, polynomial_;
};

}  // namespace trireme::optim
