#pragma once

#include <string>

#include "src/backend/kernels/kernel_family.hpp"

namespace trireme {

/// A tensor of heads inside a larger one: element (position, sample, head, channel) is
/// data[position * position_stride + sample * sample_stride + head * head_stride + channel], in elements of T.
template <class View>
struct HeadsOf {
  View data;  ///< its shape is not read
  std::int64_t position_stride = 0;
  std::int64_t sample_stride = 0;
  std::int64_t head_stride = 0;

  /// The heads from `position` on.
  HeadsOf from(std::int64_t position) const {
    const auto skip = static_cast<std::int64_t>(size_of(data.dtype())) * position * position_stride;
    return {View(data.data() + skip, data.dtype(), data.shape()), position_stride, sample_stride, head_stride};
  }
  /// Writable converts to read-only.
  operator HeadsOf<ConstTensorView>() const { return {data, position_stride, sample_stride, head_stride}; }
};
using Heads = HeadsOf<TensorView>;
using ConstHeads = HeadsOf<ConstTensorView>;

/// The extent of a tensor of heads.
struct HeadsShape {
  std::int64_t positions = 0;
  std::int64_t batch = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  /// Positions of the target at which those of each sample begin, [batch] in the backend's memory; null: 0.
  const std::int32_t* begins = nullptr;
};

/// Attention without an s x s matrix in memory (Dao et al. 2022, arXiv:2205.14135): rows of scores are computed and
/// used block by block. Backward computes them again from q, k and the log-sum-exp of each row. T the training type;
/// scores, softmax and sums in A (fp64 for fp64, else fp32). Stream-ordered, deterministic.
class AttentionKernels : public KernelFamily<AttentionKernels> {
 public:
  using KernelFamily::KernelFamily;

  /// Checks heads of `head_dim` channels, with or without a soft cap of the scores, before training. Returns the reason
  /// why they are slow here, for the log; empty if they are not. Throws ConfigError if the device cannot run them.
  virtual std::string check_heads(DType dtype, std::int64_t head_dim, bool soft_cap) const {
    return inner() == nullptr ? std::string() : inner()->check_heads(dtype, head_dim, soft_cap);
  }

  /// q, out: `queries` positions, `heads` heads; k, v: `keys` positions, `kv_heads` heads.
  /// log_sum_exp [b, heads, queries] A: log of the sum of exp(score) over the visible keys. Overwrites out, T, and
  /// log_sum_exp; a query without visible keys has 0 and minus infinity. With `merge` out, A, and log_sum_exp hold
  /// attention over other keys and become that over all of them; out is not read where log_sum_exp is minus infinity.
  virtual void attention(Stream& stream, const AttentionProblem& problem, ConstHeads q, ConstHeads k, ConstHeads v,
                         Heads out, TensorView log_sum_exp) {
    // Single queries read their samples' keys. Lengths are in the backend's memory: all keys count.
    const auto rows = static_cast<double>(problem.batch * problem.head_dim * std::int64_t(size_of(q.data.dtype())));
    const double read = rows * 2 * static_cast<double>(problem.keys * problem.kv_heads + problem.heads);
    pass_on(&AttentionKernels::attention, stream,
            {.kind = KernelKind::attention,
             .bytes = problem.is_decoding() ? read : 0,
             .launches = problem.is_decoding() ? 2 : 1,
             .attention = problem,
             .tensor_cores = on_tensor_cores(problem, q)},
            problem, q, k, v, out, log_sum_exp);
  }

  /// Gradients of q, k, v from that of out, overwritten, T; with `merge` added to, A; 0 for a query without visible
  /// keys and a key that is not visible. out, T, and log_sum_exp are those over all keys. `row_dot` [b, heads, queries]
  /// A is workspace (sum over channels of dout out).
  virtual void attention_backward(Stream& stream, const AttentionProblem& problem, ConstHeads dout, ConstHeads q,
                                  ConstHeads k, ConstHeads v, ConstHeads out, ConstTensorView log_sum_exp,
                                  TensorView row_dot, Heads dq, Heads dk, Heads dv) {
    // `bytes` covers only the sums over dout times out, and the masks, which are written and read.
    const double rows = static_cast<double>(problem.queries * problem.batch * problem.heads);
    const std::int64_t mask_bytes = on_tensor_cores(problem, q) ? kept_mask_bytes(problem) : 0;
    const double bytes = 2 * rows * static_cast<double>(problem.head_dim * std::int64_t(size_of(out.data.dtype()))) +
                         static_cast<double>(problem.causal ? mask_bytes : 2 * mask_bytes);
    pass_on(&AttentionKernels::attention_backward, stream,
            {.kind = KernelKind::attention_backward,
             .bytes = bytes,
             .launches = on_tensor_cores(problem, q) && problem.head_dim > 128 ? 4 : 3,
             .attention = problem,
             .tensor_cores = on_tensor_cores(problem, q),
             .extents = {.mask_bytes = mask_bytes}},
            problem, dout, q, k, v, out, log_sum_exp, row_dot, dq, dk, dv);
  }

  /// to = from, rounded to its type; of the two types one is the other or its accumulation type. Overwrites. Strides of
  /// `from` may be 0: all heads, samples or positions are then copies of one.
  virtual void copy_heads(Stream& stream, const HeadsShape& shape, ConstHeads from, Heads to) {
    const double numel = static_cast<double>(shape.positions * shape.batch * shape.heads * shape.head_dim);
    pass_on(&AttentionKernels::copy_heads, stream,
            {KernelKind::copies, numel * static_cast<double>(size_of(from.data.dtype()) + size_of(to.data.dtype()))},
            shape, from, to);
  }

 private:
  static bool on_tensor_cores(const AttentionProblem& problem, ConstHeads q) {
    return has_flash_attention(q.data.dtype(), problem.head_dim, problem.soft_cap > 0);
  }
};

}  // namespace trireme
