#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "src/backend/kernels/attention_problem.hpp"
#include "src/tensor/tensor_view.hpp"

namespace trireme {

/// Kinds of calls: lines of the table of a predicted or measured step.
enum class KernelKind {
  forward,
  input_gradient,
  weight_gradient,
  logits,  ///< products of the vocabulary, in all three directions
  attention,
  attention_backward,
  norm,
  norm_backward,
  dropout,
  activation,
  cross_entropy,
  embedding,
  routing,  ///< choice of experts for tokens, order of rows, weights
  optimizer,
  gradients,
  copies,
  inputs,   ///< copies from the host
  results,  ///< copies to the host
};
constexpr int kernel_kind_count = static_cast<int>(KernelKind::results) + 1;

/// Name in tables and JSON.
std::string_view name_of(KernelKind kind);

/// Work at the end of a product, fused by the library or done by other kernels.
enum class ProductEnd {
  none,
  bias,                   ///< in forward
  activation,             ///< in forward, with or without a bias
  activation_backward,    ///< times the activation's derivative
  bias_gradient,          ///< sums over rows, beside a weight's gradient
  rounded_bias_gradient,  ///< the same from partial sums, made where the rows are rounded to FP8
};

/// d [m, n] = a b, or d += a b, over k. Row-major, as in the model: m rows, or the outputs of a weight's gradient.
struct ProductCall {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t batch = 1;    ///< products of one call, alike
  double bytes = 0;          ///< operands and results, each read and written once, including what a fused end moves
  bool fp8 = false;          ///< operands in FP8
  int rounded = 0;           ///< operands that kernels first round to FP8
  double rounded_bytes = 0;  ///< moved by these kernels
  /// Runs on a stream of its own beside others, which have the multiprocessors that its last wave leaves free.
  bool beside = false;
  ProductEnd end = ProductEnd::none;
  bool can_fuse = true;    ///< cuBLASLt has the end as an epilogue: its GELU is the tanh form
  double end_bytes = 0;    ///< moved by the separate kernel, if the end is not fused
  TensorView result = {};  ///< d, for observers during the call; empty if a call is only priced
};

/// Extents that determine the scratch memory of kernels.
struct KernelExtents {
  std::int64_t weight_gradient = 0;  ///< elements of the largest gradient of a matrix
  std::int64_t summed_rows = 0;      ///< maximum number summed into the gradients of biases and norms
  std::int64_t summed_columns = 0;
  std::int64_t balanced_tokens = 0;  ///< tokens of a router with sums over tokens
  std::int64_t limited_choices = 0;  ///< choices of experts of limited capacity
  std::int64_t groups = 0;           ///< products beside each other: of a rank's experts, or collected gradients
  std::int64_t fp8_bytes = 0;        ///< operands that a product rounds for itself
  std::int64_t mask_bytes = 0;       ///< dropout's masks of an attention's backward
};

/// Costs of one call of a kernel.
struct KernelCall {
  KernelKind kind;
  double bytes = 0;  ///< inputs and outputs of a memory-bound kernel, each once
  int launches = 1;  ///< on the CUDA backend, except for a product's end
  std::optional<ProductCall> product = {};
  std::optional<AttentionProblem> attention = {};
  bool tensor_cores = true;  ///< attention has kernels on tensor cores (has_flash_attention)
  KernelExtents extents = {};

  /// Multiply-adds, two FLOPs each. If `causal_halved`, a causal mask halves the pairs. A window always counts, by its
  /// share of the past.
  double flops(bool causal_halved = false) const;
  /// Launches on the CUDA backend.
  int launch_count(bool fused) const;
};

/// The product of all extents but the last: the rows of a tensor as a matrix.
inline std::int64_t rows_of(const Shape& shape) {
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < shape.rank(); ++i) rows *= shape[i];
  return rows;
}

/// Sum of the sizes; empty tensors count as 0. Pass a tensor that is read and written twice.
inline double bytes_of(std::initializer_list<ConstTensorView> tensors) {
  double sum = 0;
  for (const ConstTensorView& tensor : tensors) sum += static_cast<double>(tensor.size_bytes());
  return sum;
}

/// Extents of a sum over the rows of `dy`, into the tensors `sums`.
inline KernelExtents sums_of(ConstTensorView dy, std::initializer_list<ConstTensorView> sums) {
  KernelExtents extents{.summed_rows = rows_of(dy.shape())};
  for (const ConstTensorView& sum : sums) extents.summed_columns += sum ? sum.numel() : 0;
  return extents;
}

}  // namespace trireme
