#pragma once

#include "src/backend/kernels/dropout.hpp"
#include "src/tensor/dtype.hpp"

namespace trireme {

/// Treatment of an attention's results.
enum class AttentionResults {
  overwrite,  ///< the given keys are all keys
  merge,      ///< results, of type A, are merged with those over earlier keys
};

/// Softmax attention of one micro-batch: out = dropout(softmax(scale q k^T + mask)) v, head by head. The scores may
/// have a soft cap.
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
  double soft_cap = 0;  ///< scores x become soft_cap tanh(x / soft_cap) before the softmax; 0: they stay
  bool causal = true;   ///< a query attends to the keys up to its own position in the sequence
  /// Lengths of padded samples, [batch] in the backend's memory; null: no padding. Positions from the length of their
  /// sample on are padding: no query attends to keys there, and queries there attend to nothing. Their out and dq are
  /// thus 0, and they add nothing to any gradient, regardless of q, k, v and dout there. Tiles of padding only are
  /// skipped. The lengths are read when the kernels run, so a graph may be replayed with others.
  const std::int32_t* lengths = nullptr;
  /// First visible key of each query, as a position in the sequence, [queries, batch] in the backend's memory; null: 0.
  /// Does not decrease from query to query, and is at most the query's own position. In packed documents it is the
  /// start of the query's document. Tiles entirely before it are skipped. Read when the kernels
  /// run, as lengths are.
  const std::int32_t* first_visible = nullptr;
  /// Number of earlier positions that a query attends to (sliding window; Child et al. 2019, arXiv:1904.10509);
  /// negative: all. Applies in addition to first_visible. Tiles outside all their queries' windows are skipped.
  std::int64_t window = -1;
  /// Attention heads of the full model if scores have linear biases (ALiBi; Press et al. 2022, arXiv:2108.12409); 0:
  /// they have none. A score, after its cap, grows by slope (key's position - query's), slope = 2^`alibi_exponent`.
  /// Without a causal mask there may be one query alone: it is at the position of its sample's last key.
  std::int64_t alibi_heads = 0;
  double alibi_shift = 0;  ///< divides all slopes by 2^`alibi_shift`
  Dropout dropout;  ///< mask at row = the query's position, column = the key's, key = head_key(first_head + head)
  std::int64_t first_head = 0;  ///< this rank's head 0 among the full model's
  AttentionResults results = AttentionResults::overwrite;

  /// Number of keys of one sample that are not padding.
  constexpr std::int64_t keys_of(std::int64_t sample) const { return before_padding(sample, first_key, keys); }
  /// Number of queries of one sample that are not padding.
  constexpr std::int64_t queries_of(std::int64_t sample) const { return before_padding(sample, first_query, queries); }
  /// Returns whether each sample has one query alone, as in text generation, whose results are of these keys.
  constexpr bool is_decoding() const {
    return queries == 1 && !dropout.enabled() && results == AttentionResults::overwrite;
  }
  constexpr bool hides_earlier_keys() const { return first_visible != nullptr || window >= 0; }
  /// First visible key of a query of one sample, counted from key 0; `keys` or more if none is visible. Does not
  /// decrease from query to query.
  constexpr std::int64_t first_key_of(std::int64_t sample, std::int64_t query) const {
    const std::int64_t document = first_visible == nullptr ? 0 : first_visible[query * batch + sample];
    const std::int64_t begin = window < 0 ? 0 : first_query + query - window;
    const std::int64_t first = (document < begin ? begin : document) - first_key;
    return first < 0 ? 0 : first;
  }
  /// Logarithm to the base 2 of the slope of the head's biases. The first n heads, n the largest power of two among
  /// their numbers, have 2^(-8 / n), 2^(-16 / n) ... 2^-8; the others 2^(-4 / n), 2^(-12 / n) ...
  template <class A>
  constexpr A alibi_exponent(std::int64_t head) const {
    std::int64_t n = 1;
    while (2 * n <= alibi_heads) n *= 2;
    const std::int64_t all = first_head + head, steps = all < n ? 2 * (all + 1) : 2 * (all - n) + 1;
    return static_cast<A>(-4 * steps) / static_cast<A>(n) - static_cast<A>(alibi_shift);
  }
  /// Position of query 0 of a sample from key 0 on, for these biases.
  constexpr std::int64_t alibi_origin(std::int64_t sample) const {
    return causal ? first_query - first_key : keys_of(sample) - 1;
  }

 private:
  constexpr std::int64_t before_padding(std::int64_t sample, std::int64_t first, std::int64_t count) const {
    if (lengths == nullptr) return count;
    const std::int64_t own = lengths[sample] - first;
    return own < 0 ? 0 : own < count ? own : count;
  }
};

/// Bytes of dropout's masks that a backward on tensor cores draws once and reads again: a word for 32 keys, [batch,
/// heads, queries, words of the tiles of 64 keys]. 0 without dropout, with heads of more than 128 channels, whose
/// kernels lack registers, and if they would take more than 256 MiB: then each pass draws them.
constexpr std::int64_t kept_mask_bytes(const AttentionProblem& a) {
  constexpr std::int64_t tile_bytes = 8, limit = std::int64_t{256} << 20;
  const std::int64_t bytes = a.batch * a.heads * a.queries * ((a.keys + 63) / 64) * tile_bytes;
  return a.dropout.enabled() && a.head_dim <= 128 && bytes <= limit ? bytes : 0;
}

/// Returns whether the CUDA backend computes attention on tensor cores (cuda/kernels/flash_attention*.cu).
constexpr bool has_flash_attention(DType dtype, std::int64_t head_dim, bool soft_cap) {
  const bool has_kernels = head_dim == 64 || head_dim == 96 || head_dim == 128 || head_dim == 192;
  return (dtype == DType::bf16 || dtype == DType::fp16) && has_kernels && !soft_cap;
}

/// Returns whether these kernels have a second form by products of warp groups, for compute capability 9.0
/// (cuda/kernels/warp_group_*.cu).
constexpr bool has_warp_group_attention(std::int64_t head_dim) {
  return head_dim == 64 || head_dim == 96 || head_dim == 128;
}

}  // namespace trireme
