#pragma once

#include <functional>
#include <memory>

#include "src/backend/kernels/attention.hpp"
#include "src/backend/kernels/cross_entropy.hpp"
#include "src/backend/kernels/elementwise.hpp"
#include "src/backend/kernels/embedding.hpp"
#include "src/backend/kernels/experts.hpp"
#include "src/backend/kernels/norm.hpp"
#include "src/backend/kernels/optimizer.hpp"
#include "src/backend/kernels/reduce.hpp"
#include "src/backend/kernels/rotary.hpp"
#include "src/tensor/memory.hpp"

namespace trireme::cuda {

/// Allocates memory for the stream's work until the buffer is released.
using Scratch = std::function<Buffer(Stream& stream, std::size_t size_bytes)>;

// The hand-written kernels, by family.
std::unique_ptr<ElementwiseKernels> make_elementwise(Scratch scratch);
std::unique_ptr<NormKernels> make_norm(Scratch scratch);
std::unique_ptr<EmbeddingKernels> make_embedding();
std::unique_ptr<ExpertKernels> make_experts(Scratch scratch);
std::unique_ptr<OptimizerKernels> make_optimizer();
std::unique_ptr<ReduceKernels> make_reduce(Scratch scratch);
std::unique_ptr<RotaryKernels> make_rotary();
/// `max_shared_bytes` is the maximum shared memory of a block, here and below.
std::unique_ptr<CrossEntropyKernels> make_cross_entropy(std::size_t max_shared_bytes);
/// `warp_groups`: whether the device has their products.
std::unique_ptr<AttentionKernels> make_attention(Scratch scratch, std::size_t max_shared_bytes, bool warp_groups);

// Kernels of a family in separate files.

/// NormKernels::normalise_backward of tensors that fit.
void norm_backward(Stream& stream, const Scratch& new_scratch, ConstTensorView dy, ConstTensorView x,
                   const NormWeight& weight, const NormStatistics& statistics, ConstTensorView residual_gradient,
                   TensorView dx, TensorView dweight, TensorView dbias);

/// ExpertKernels::route and its gradient.
void route(Stream& stream, const Scratch& new_scratch, const RouterProblem& problem, ConstTensorView logits,
           ConstTensorView bias, TensorView experts, TensorView weights, TensorView counts, TensorView sums,
           TensorView token_sums);
void route_backward(Stream& stream, const RouterProblem& problem, ConstTensorView logits, ConstTensorView experts,
                    ConstTensorView dweights, const BalanceGradient& balance, TensorView dlogits);
/// Maximum scratch memory of ExpertKernels::route with sums over tokens, of types that accumulate in fp32.
std::size_t route_scratch_bytes(std::int64_t tokens);
/// Likewise of ExpertKernels::limit_load, for n k choices.
std::size_t limit_load_scratch_bytes(std::int64_t choices);

// Attention of one query of each sample, for all types and heads of up to 256 channels.

bool has_decode_attention(const AttentionProblem& problem);
/// Two launches. A sample's results depend on its own queries, keys and length alone.
void decode_attention(Stream& stream, const Scratch& new_scratch, const AttentionProblem& problem, const ConstHeads& q,
                      const ConstHeads& k, const ConstHeads& v, const Heads& out, TensorView log_sum_exp);

// Attention on tensor cores (Dao 2023, arXiv:2307.08691), for bf16 and fp16 and heads of 64, 96, 128 and 192 channels.
// It computes what AttentionKernels defines, with probabilities and gradients of scores rounded to the training type.

/// Returns whether the kernels support the problem. Conditions: has_flash_attention holds (attention_problem.hpp).
/// Every tensor of heads is aligned to 16 bytes. Offsets within `tensors` are less than 4 GiB. Dropout's groups of
/// eight keys begin with the keys.
bool takes_flash_attention(const AttentionProblem& problem, std::initializer_list<ConstHeads> tensors);

/// Shared memory of a block that heads of so many channels need, with their gradients. `head_dim` is one of those
/// above.
std::size_t flash_attention_shared_bytes(std::int64_t head_dim);

void flash_attention(Stream& stream, const AttentionProblem& problem, const ConstHeads& q, const ConstHeads& k,
                     const ConstHeads& v, const Heads& out, TensorView log_sum_exp);

/// Gradients of q, k and v; row_dot [b, heads, queries] is given. `masks` is memory of kept_mask_bytes, or null.
void flash_attention_backward(Stream& stream, const AttentionProblem& problem, const ConstHeads& dout,
                              const ConstHeads& q, const ConstHeads& k, const ConstHeads& v,
                              ConstTensorView log_sum_exp, ConstTensorView row_dot, const Heads& dq, const Heads& dk,
                              const Heads& dv, std::uint32_t* masks);

// The same by products of warp groups, for heads of these sizes, on devices of compute capability 9.0 alone. Tiles are
// added in the same order.

void warp_group_attention(Stream& stream, const AttentionProblem& problem, const ConstHeads& q, const ConstHeads& k,
                          const ConstHeads& v, const Heads& out, TensorView log_sum_exp);
void warp_group_query_gradient(Stream& stream, const AttentionProblem& problem, const ConstHeads& dout,
                               const ConstHeads& q, const ConstHeads& k, const ConstHeads& v,
                               ConstTensorView log_sum_exp, ConstTensorView row_dot, const Heads& dq,
                               std::uint32_t* masks);
void warp_group_key_gradient(Stream& stream, const AttentionProblem& problem, const ConstHeads& dout,
                             const ConstHeads& q, const ConstHeads& k, const ConstHeads& v, ConstTensorView log_sum_exp,
                             ConstTensorView row_dot, const Heads& dk, const Heads& dv, std::uint32_t* masks);

}  // namespace trireme::cuda
