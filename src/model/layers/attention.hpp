#pragma once

#include <optional>

#include "src/model/layers/dropout_plan.hpp"
#include "src/model/layers/head_norm.hpp"
#include "src/model/layers/layer_shape.hpp"
#include "src/parallel/context/ring_attention.hpp"
#include "src/parallel/data/parameter_buffer.hpp"
#include "src/parallel/tensor/linear.hpp"

namespace trireme::model {

/// Keys and values of the earlier positions, for generation: one [capacity, b, 2, kv_local, d] tensor.
struct KeyValueCache {
  TensorView data;
  std::int64_t length = 0;  ///< positions filled
};

/// Self-attention of one layer, causal where its shape says so. Q, K, V come from a column-parallel product, the output
/// from a row-parallel product without its bias; heads are split over the tensor group. Norms of Q and K come before
/// rotary positions, which rotate both. With fewer heads of keys and values, neighbouring heads of queries on the same
/// rank read each.
class SelfAttention {
 public:
  /// Inputs of backward. Selective recomputation keeps Q, K and V and recomputes the attention: its output and
  /// log-sum-exp are empty. Where context ranks split the sequence, each tensor is this rank's shard.
  struct Saved {
    ConstTensorView input;
    /// [s, b, 3, a_local, d], or with fewer heads of keys and values [s, b, a_local, d] and behind it
    /// [s, b, 2, kv_local, d]; Q and K are normalised and rotated.
    TensorView qkv;
    TensorView heads_out;           ///< [s, b, a_local, d]
    TensorView log_sum_exp;         ///< [b, a_local, s]
    HeadNorm::Saved queries, keys;  ///< norms of Q and K, where the model has them
    static Saved allocate(const LayerShape& shape, bool selective, Arena& arena);
  };
  /// Gradients within backward, and the recomputed output of the heads. backward_weight needs that of qkv alone.
  struct Gradients {
    TensorView output;  ///< [s_local, b, h]
    TensorView qkv;
    TensorView heads_out;
    static Gradients allocate(const LayerShape& shape, bool selective, Arena& arena);
  };

  /// Takes the parameters `prefix`.qkv.*, or `prefix`.q.* and `prefix`.kv.*, `prefix`.proj.weight, and with norms of Q
  /// and K `prefix`.q_ln.* and `prefix`.k_ln.*.
  SelfAttention(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                const std::string& prefix, const ModelConfig& config, int layer, std::int64_t first_head);

  /// y [s_local, b, h] = attention(x), overwritten; x [s_local, b, h] must live as long as `saved`.
  void forward(const LayerShape& shape, ConstTensorView x, const DropoutPlan& dropout, Saved& saved,
               TensorView y) const;
  /// Computes dx from gradients.output, overwritten, and fills the rest of `gradients`. The projection's weight gets
  /// its gradient here even where the others are left for later, so that nothing is kept for it.
  void backward_input(const LayerShape& shape, const DropoutPlan& dropout, const Saved& saved, Gradients& gradients,
                      TensorView dx, parallel::WeightGradient weights) const;
  void backward_weight(const LayerShape& shape, const Saved& saved, const Gradients& gradients) const;

  /// y = attention of the shape.s newest positions, x [s, b, h], to those in `cache` and to themselves; appends to
  /// `cache`. Without dropout.
  void forward_cached(const LayerShape& shape, ConstTensorView x, KeyValueCache& cache, TensorView y) const;

 private:
  /// Normalises Q and K in place, where the model has these norms.
  void normalise(const LayerShape& shape, TensorView qkv, const HeadNorm::Saved& queries,
                 const HeadNorm::Saved& keys) const;
  /// Rotates Q and K, or their gradients, in place.
  void rotate(const LayerShape& shape, TensorView qkv, Rotation rotation) const;
  void attend(const LayerShape& shape, const DropoutPlan& dropout, ConstTensorView qkv, TensorView heads_out,
              TensorView log_sum_exp) const;
  parallel::RingAttention ring() const {
    return parallel::RingAttention(context_.backend, *context_.context_group, context_.workspace);
  }
  AttentionProblem problem(const LayerShape& shape, std::int64_t keys, const Dropout& dropout) const;

  parallel::TensorContext context_;
  parallel::ColumnParallelLinear qkv_;
  std::optional<HeadNorm> query_norm_, key_norm_;
  parallel::RowParallelLinear projection_;
  RotaryEmbedding rotary_;
  std::int64_t window_;
  int layer_;
  std::int64_t first_head_;
};

}  // namespace trireme::model
