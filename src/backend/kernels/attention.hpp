#pragma once

#include <string>

#include "src/backend/kernels/dropout.hpp"
#include "src/tensor/stream.hpp"
#include "src/tensor/tensor_view.hpp"

namespace trireme {

/// Treatment of an attention's results.
enum class AttentionResults {
  overwrite,  ///< these are all keys
  merge,      ///< these are some of the keys: results, of type A, are joined with those over the keys before
};

/// Softmax attention of one micro-batch: out = dropout(softmax(scale q k^T + mask)) v, head by head.
struct AttentionProblem {
  std::int64_t queries = 0;      ///< positions of q and out
  std::int64_t keys = 0;         ///< positions of k and v
  std::int64_t first_query = 0;  ///< position of query 0 in the sequence
  std::int64_t first_key = 0;    ///< position of key 0 in the sequence
  std::int64_t batch = 0;
  std::int64_t heads = 0;     ///< query heads on this rank
  std::int64_t kv_heads = 0;  ///< heads of k and v on this rank; head a reads kv head a / (heads / kv_heads)
  std::int64_t head_dim = 0;
  double scale = 1;
  bool causal = true;  ///< a query attends to the keys up to its own position in the sequence
  /// Lengths of padded samples, [batch] in the backend's memory; null: no padding. Positions from the length of their
  /// sample on are padding: no query attends to keys there, and queries there attend to nothing. So their out and dq
  /// are 0, and they add nothing to any gradient, whatever q, k, v and dout hold there. Tiles that are all padding are
  /// skipped. The lengths are read when the kernels run, so a graph may be replayed with others.
  const std::int32_t* lengths = nullptr;
  /// First visible key of each query, as a position in the sequence, [queries, batch] in the backend's memory; null: 0.
  /// It does not decrease from query to query, and is at most the query's own position. In packed documents it is the
  /// start of the query's document. Tiles that lie before it for all their queries are skipped. Read when the kernels
  /// run, as lengths are.
  const std::int32_t* first_visible = nullptr;
  /// Positions before its own that a query attends to (sliding window; Child et al. 2019, arXiv:1904.10509); negative:
  /// all. It holds beside first_visible, and tiles outside of the windows of all their queries are skipped.
  std::int64_t window = -1;
  Dropout dropout;  ///< mask at row = the query's position, column = the key's, key = head_key(first_head + head)
  std::int64_t first_head = 0;  ///< this rank's head 0 among the whole model's
  AttentionResults results = AttentionResults::overwrite;

  /// Number of keys of one sample that are not padding.
  constexpr std::int64_t keys_of(std::int64_t sample) const { return before_padding(sample, first_key, keys); }
  /// Number of queries of one sample that are not padding.
  constexpr std::int64_t queries_of(std::int64_t sample) const { return before_padding(sample, first_query, queries); }
  /// Returns whether the first visible key depends on the query.
  constexpr bool hides_earlier_keys() const { return first_visible != nullptr || window >= 0; }
  /// First visible key of a query of one sample, counted from key 0; `keys` or more where all keys are before it. It
  /// does not decrease from query to query.
  constexpr std::int64_t first_key_of(std::int64_t sample, std::int64_t query) const {
    const std::int64_t document = first_visible == nullptr ? 0 : first_visible[query * batch + sample];
    const std::int64_t begin = window < 0 ? 0 : first_query + query - window;
    const std::int64_t first = (document < begin ? begin : document) - first_key;
    return first < 0 ? 0 : first;
  }

 private:
  constexpr std::int64_t before_padding(std::int64_t sample, std::int64_t first, std::int64_t count) const {
    if (lengths == nullptr) return count;
    const std::int64_t own = lengths[sample] - first;
    return own < 0 ? 0 : own < count ? own : count;
  }
};

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
};

/// Attention without an s x s matrix in memory (Dao et al. 2022, arXiv:2205.14135): rows of scores are computed and
/// used block by block. Backward computes them again from q, k and the log-sum-exp of each row. T the training type;
/// scores, softmax and sums in A (fp64 for fp64, else fp32). Stream-ordered, deterministic.
class AttentionKernels {
 public:
  virtual ~AttentionKernels() = default;

  /// Checks heads of `head_dim` channels before training. Returns the reason why they are slow here, for the log; empty
  /// where they are not. Throws ConfigError where the device cannot run them.
  virtual std::string check_head_dim(DType dtype, std::int64_t head_dim) const = 0;

  /// q, out: `queries` positions, `heads` heads; k, v: `keys` positions, `kv_heads` heads.
  /// log_sum_exp [b, heads, queries] A: log of the sum of exp(scale q k) over the visible keys. Overwrites out, T, and
  /// log_sum_exp; a query without visible keys has 0 and minus infinity. With `merge` out, A, and log_sum_exp hold
  /// attention over other keys and become that over all of them; out is not read where log_sum_exp is minus infinity.
  virtual void attention(Stream& stream, const AttentionProblem& problem, ConstHeads q, ConstHeads k, ConstHeads v,
                         Heads out, TensorView log_sum_exp) = 0;

  /// Gradients of q, k, v from that of out, overwritten, T; with `merge` added to, A; 0 for a query without visible
  /// keys and a key that is not visible. out, T, and log_sum_exp are those over all keys. `row_dot` [b, heads, queries]
  /// A is work space (sum over channels of dout out).
  virtual void attention_backward(Stream& stream, const AttentionProblem& problem, ConstHeads dout, ConstHeads q,
                                  ConstHeads k, ConstHeads v, ConstHeads out, ConstTensorView log_sum_exp,
                                  TensorView row_dot, Heads dq, Heads dk, Heads dv) = 0;

  /// to = from, rounded to its type; of the two types one is the other or its accumulation type. Overwrites.
  virtual void copy_heads(Stream& stream, const HeadsShape& shape, ConstHeads from, Heads to) = 0;
};

}  // namespace trireme
