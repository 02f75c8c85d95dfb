#pragma once

#include <cstdint>

#include "src/backend/backend.hpp"

namespace trireme::optim {

/// Coefficients (a, b, c) of the Newton-Schulz steps, used in turn.
enum class NewtonSchulzCoefficients {
  quintic,  ///< five steps with growing accuracy
  simple    ///< (3.4445, -4.7750, 2.0315) in each (Jordan et al. 2024, kellerjordan.github.io/posts/muon)
};

/// Type of the products. device: bf16 on GPUs, as in Jordan et al., because the result needs no more precision; the
/// matrix's own type on the CPU, where bf16 is slower. full: the matrix's own type.
enum class NewtonSchulzProducts { device, full };

struct NewtonSchulzOptions {
  NewtonSchulzCoefficients coefficients = NewtonSchulzCoefficients::quintic;
  int steps = 5;
  NewtonSchulzProducts products = NewtonSchulzProducts::device;
};

/// Orthogonalises matrices of one type, fp32 or fp64, one after another.
class NewtonSchulz {
 public:
  /// For matrices of type `dtype` with at most `max_elements` elements, whose shorter side has at most `max_side`.
  NewtonSchulz(Backend& backend, DType dtype, std::int64_t max_elements, std::int64_t max_side,
               const NewtonSchulzOptions& options);

  /// X [rows, columns] becomes about U V^T, where X = U S V^T. X is divided by max(its Frobenius norm, 1e-7); then each
  /// step is X = a X + (b A + c A^2) X, A = X X^T; with more rows than columns X = a X + X (b A + c A^2), A = X^T X.
  /// Products of bf16 read and write bf16: X is rounded after the division and after each step. Stream-ordered.
  void operator()(TensorView x);

 private:
  void iterate(TensorView x);

  Backend& backend_;
  NewtonSchulzOptions options_;
  DType products_;
  Tensor squares_, product_, gram_, square_;
  Tensor rounded_;   // X, if products have another type
  Tensor gradient_;  // X^T X in the type of gradients, if that differs
};

}  // namespace trireme::optim
