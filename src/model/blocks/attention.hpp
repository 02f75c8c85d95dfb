#pragma once

#include <functional>
#include <optional>
#include <span>

#include "src/model/blocks/latent_heads.hpp"
#include "src/model/blocks/layer_shape.hpp"
#include "src/model/blocks/norm.hpp"
#include "src/parallel/context/ring_attention.hpp"
#include "src/parallel/data/parameter_buffer.hpp"
#include "src/parallel/tensor/linear.hpp"

namespace trireme::model {

/// Cached keys and values of the earlier positions of several texts, for generation.
struct KeyValueCache {
  TensorView data;  ///< [texts, capacity, 2, kv_local, d]

  std::int64_t kv_heads() const { return data.shape()[3]; }
  std::int64_t head_dim() const { return data.shape()[4]; }
  /// Keys of the texts from `text` on, starting at `position`. Each position's keys are followed by its values.
  Heads keys(std::int64_t text, std::int64_t position = 0) const { return at(text, position, 0); }
  Heads values(std::int64_t text) const { return at(text, 0, kv_heads() * head_dim()); }

 private:
  Heads at(std::int64_t text, std::int64_t position, std::int64_t channel) const {
    const std::int64_t row = 2 * kv_heads() * head_dim(), rows = data.shape()[1];
    const auto skip = static_cast<std::int64_t>(size_of(data.dtype())) * ((text * rows + position) * row + channel);
    return {TensorView(data.data() + skip, data.dtype(), data.shape()), row, rows * row, head_dim()};
  }
};

/// Consecutive texts of a cache that a forward continues, one for each sample of its micro-batch.
struct CachedTexts {
  std::int64_t first = 0;
  std::span<const std::int64_t> lengths;  ///< positions that the cache already holds of each
};

/// Self-attention of one layer, causal if its shape is. A column-parallel layer computes Q, K and V, a row-parallel one
/// the output, without its bias. Heads are split over the tensor group. QK norm, if any, precedes rotation. In
/// grouped-query attention, consecutive query heads of one rank share a head of keys and values. In latent attention
/// LatentHeads computes Q, K and V.
class SelfAttention {
 public:
  /// Inputs of backward. Selective recomputation keeps Q, K and V and recomputes the attention, so its output and
  /// log-sum-exp are empty. With context parallelism, each tensor is this rank's shard of the sequence.
  struct Saved {
    ConstTensorView input;  ///< matrix of x
    /// [s, b, 3, a_local, d], or with grouped queries or latents [s, b, a_local, d] followed by [s, b, 2, kv_local,
    /// d]; Q and K are normalised and rotated.
    TensorView qkv;
    TensorView heads_out;           ///< [s, b, a_local, d]
    TensorView log_sum_exp;         ///< [b, a_local, s]
    HeadNorm::Saved queries, keys;  ///< state of QK norm, if any
    LatentHeads::Saved latent;      ///< in latent attention
  };
  /// Gradients within backward, and the recomputed output of the heads. backward_weight reads only `qkv` and
  /// `latent`.
  struct Gradients {
    TensorView output;  ///< [s_local, b, h]
    TensorView qkv;
    TensorView heads_out;
    LatentHeads::Gradients latent;  ///< in latent attention
  };

  /// Adds `prefix`.qkv.weight [3, heads, d, hidden], or with grouped queries `prefix`.q.weight [heads, d, hidden] and
  /// `prefix`.kv.weight [2, kv heads, d, hidden], split along heads; with QK norm `prefix`.q_ln.* and `prefix`.k_ln.*
  /// (HeadNorm); or in latent attention the parameters of LatentHeads; `prefix`.proj.weight [hidden, heads
  /// value_dim]; and the biases.
  static void declare(ParameterList& list, const ModelConfig& config, const std::string& prefix);
  /// Takes these parameters, except the bias of proj.
  SelfAttention(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                const std::string& prefix, const ModelConfig& config, int layer, std::int64_t first_head);

  Saved make_saved(const LayerShape& shape, bool selective, Arena& arena) const;
  Gradients make_gradients(const LayerShape& shape, bool selective, Arena& arena) const;

  // Forward, y [s_local, b, h] = attention(x), is forward_heads, then project; their input x must outlive `saved`.

  /// Returns whether forward_heads reads gathered rows of x, which the caller has started to gather. Latent attention
  /// gathers latents instead.
  bool gathers_input() const { return !latent_; }
  /// Fills `saved` and returns the output of the heads, [s b, a_local value_dim]; not computed if it is neither saved
  /// nor `projected`. It may be in the work space, and no scope is closed.
  TensorView forward_heads(const LayerShape& shape, parallel::TensorContext::Gathering& x, const DropoutPlan& dropout,
                           Saved& saved, bool projected) const;
  /// term = this rank's term of y for some rows of the heads' output; overwritten.
  void project(ConstTensorView heads, TensorView term) const { projection_.multiply(heads, term); }

  // Backward is backward_heads, then backward_qkv.

  /// Fills `gradients` from the gathered gradients.output, all of which has arrived when it calls `arrived`.
  /// Accumulates the gradient of the projection's weight, so that nothing is kept for it.
  void backward_heads(const LayerShape& shape, parallel::TensorContext::Gathering& doutput, const DropoutPlan& dropout,
                      const Saved& saved, Gradients& gradients, const std::function<void()>& arrived) const;
  /// Overwrites dx by way of `term` and `input`, and returns its sums in flight (ColumnParallelLinear::backward_input).
  parallel::ChunkWorks backward_qkv(const LayerShape& shape, const Saved& saved, const Gradients& gradients,
                                    TensorView dx, parallel::WeightGradient weights, TensorView term,
                                    parallel::TensorContext::Gathering* input) const;
  void backward_weight(const LayerShape& shape, const Saved& saved, const Gradients& gradients) const;
  /// Moves the gradient that backward_weight reads to a tensor of `saved` that is no longer read.
  void keep_for_weights(const LayerShape& shape, const Saved& saved, Gradients& gradients) const;

  /// y = attention of the shape.s newest positions of each text, x [s, b, h], to the text's cached positions and to
  /// themselves; appends their keys and values to `cache`. No dropout. Either each text has one new position, at
  /// shape.position_ids, and shape.lengths counts it; or there is one text, and shape.lengths is null.
  void forward_cached(const LayerShape& shape, ConstTensorView x, const CachedTexts& texts, const KeyValueCache& cache,
                      TensorView y) const;

 private:
  /// Fills saved.qkv from x, whose gathering has started, and sets saved.input.
  void compute_qkv(const LayerShape& shape, parallel::TensorContext::Gathering& x, Saved& saved) const;
  /// Output of the heads without padding of values, [rows, a_local value_dim], in the work space unless there is none.
  TensorView without_padding(const LayerShape& shape, TensorView heads) const;
  /// The inverse, with zeros.
  TensorView with_padding(const LayerShape& shape, TensorView values) const;
  /// Rotates Q and K, or their gradients, in place.
  void rotate(const LayerShape& shape, TensorView qkv, Rotation rotation) const;
  void attend(const LayerShape& shape, const DropoutPlan& dropout, ConstTensorView qkv, TensorView heads_out,
              TensorView log_sum_exp) const;
  parallel::RingAttention ring() const {
    return parallel::RingAttention(context_.backend, *context_.context_group, context_.workspace);
  }
  AttentionProblem problem(const LayerShape& shape, std::int64_t keys, const Dropout& dropout) const;

  parallel::TensorContext context_;
  std::optional<parallel::ColumnParallelLinear> qkv_;  // not in latent attention
  std::optional<LatentHeads> latent_;
  std::optional<HeadNorm> query_norm_, key_norm_;
  parallel::RowParallelLinear projection_;
  RotaryEmbedding rotary_;
  double scale_;
  double soft_cap_;
  std::int64_t window_;
  std::int64_t alibi_heads_;
  double alibi_shift_;
  int layer_;
  std::int64_t first_head_;
};

}  // namespace trireme::model
