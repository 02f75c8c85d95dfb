#pragma once

#include "src/backend/kernels/attention.hpp"

namespace trireme::cuda {

// Attention on tensor cores (Dao 2023, arXiv:2307.08691), for bf16 and fp16 and heads of 64, 96 and 128 channels. As
// AttentionKernels, which has these and kernels for all the rest, but for the rounding of probabilities and of the
// gradients of scores to the training type.

/// Returns whether there are kernels for the type and the size of heads.
constexpr bool has_flash_attention(DType dtype, std::int64_t head_dim) {
  return (dtype == DType::bf16 || dtype == DType::fp16) && (head_dim == 64 || head_dim == 96 || head_dim == 128);
}
/// Returns whether the kernels support the problem. Conditions: has_flash_attention; every tensor of heads is aligned
/// to 16 bytes; the positions of `tensors` are less than 4 GiB apart; dropout's groups of eight keys begin with the
/// keys.
bool takes_flash_attention(const AttentionProblem& problem, std::initializer_list<ConstHeads> tensors);

void flash_attention(Stream& stream, const AttentionProblem& problem, const ConstHeads& q, const ConstHeads& k,
                     const ConstHeads& v, const Heads& out, TensorView log_sum_exp);

/// Gradients of q, k and v; row_dot [b, heads, queries] is given.
void flash_attention_backward(Stream& stream, const AttentionProblem& problem, const ConstHeads& dout,
                              const ConstHeads& q, const ConstHeads& k, const ConstHeads& v,
                              ConstTensorView log_sum_exp, ConstTensorView row_dot, const Heads& dq, const Heads& dk,
                              const Heads& dv);

}  // namespace trireme::cuda
