#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "src/backend/kernels/attention.hpp"
#include "src/backend/kernels/gemm.hpp"
#include "src/plan/cluster/measured_kernels.hpp"

namespace trireme::plan {

/// Kinds of a step's kernels: the lines of its table.
enum class Line {
  forward,
  input_gradient,
  weight_gradient,
  logits,
  attention,
  attention_backward,
  norm,
  norm_backward,
  dropout,
  activation,
  cross_entropy,
  embedding,
  optimizer,
  gradients,
  copies,
  inputs,
  results,
};
constexpr int line_count = static_cast<int>(Line::results) + 1;

/// Name in tables and JSON.
std::string_view name_of(Line line);

/// Work at the end of a product, which the library fuses or other kernels do.
enum class ProductEnd {
  none,
  bias,                 ///< in forward
  activation,           ///< in forward, with or without a bias
  activation_backward,  ///< times the activation's derivative
  bias_gradient,        ///< sums over rows, beside a weight's gradient
};

/// d [m, n] = a b, or d += a b, over k. Row-major, as the model has it: m rows, or the outputs of a weight's gradient.
struct ProductCall {
  std::int64_t m = 0, n = 0, k = 0;
  double bytes = 0;  ///< operands and results, each read and written once, with what a fused end moves
  ProductEnd end = ProductEnd::none;
  bool can_fuse = true;  ///< cuBLASLt has the end as an epilogue: its GELU is the tanh form
  double end_bytes = 0;  ///< moved by the kernel that does the end where it is not fused
};

/// One call of a kernel family.
struct KernelCall {
  Line line;
  double bytes = 0;  ///< inputs and outputs of a memory-bound kernel, each once
  int launches = 1;  ///< on the CUDA backend, but for a product's end
  std::optional<ProductCall> product = {};
  std::optional<AttentionProblem> attention = {};

  /// Multiply-adds, two FLOPs each. A causal mask counts where `causal_halved`: half of the pairs. A window counts
  /// always, by the share of the past that it shows.
  double flops(bool causal_halved = false) const;
  /// Launches on the CUDA backend.
  int launch_count(bool fused) const;
};

/// The call as calibrations have it, without a time.
MeasuredKernel measured_form(const KernelCall& call);

}  // namespace trireme::plan
