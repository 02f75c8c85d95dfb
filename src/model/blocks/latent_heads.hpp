#pragma once

#include <optional>
#include <string>

#include "src/model/blocks/norm.hpp"
#include "src/parallel/tensor/linear.hpp"

namespace trireme::model {

/// Linear layer y = x W^T whose weight is on all tensor ranks. Each computes its own rows of the residual stream.
class ReplicatedLinear {
 public:
  /// Takes rows [first, first + rows) of the weight.
  ReplicatedLinear(const parallel::TensorContext& context, const parallel::Parameter& weight, std::int64_t first,
                   std::int64_t rows)
      : context_(context),
        first_(first),
        weight_(weight.value.rows(first, rows)),
        weight_gradient_(weight.gradient ? weight.gradient.rows(first, rows) : TensorView()) {}
  /// Adds an adapter (LowRankTerm) of the weight.
  void adapt(const parallel::Parameter& a, const parallel::Parameter& b, double scale) {
    adapter_.emplace(context_).adapt_outputs(a, b, scale, first_, weight_.shape()[0]);
  }

  /// Overwrites y.
  void forward(ConstTensorView x, TensorView y) const;
  /// dx = dy W, overwritten or with `adds` added to dx. Accumulates the gradients of weight and adapter if `weights` is
  /// now.
  void backward_input(ConstTensorView dy, ConstTensorView x, TensorView dx, bool adds,
                      parallel::WeightGradient weights) const;
  /// Accumulates the gradients of weight and adapter.
  void backward_weight(ConstTensorView dy, ConstTensorView x) const;

 private:
  /// Returns whether all tensor ranks compute the same rows; otherwise each has its own, and the gradients are summed.
  bool repeats_rows() const { return context_.tensor_group.size() > 1 && !context_.sequence_parallel; }

  parallel::TensorContext context_;
  std::int64_t first_;
  TensorView weight_;
  TensorView weight_gradient_;  // empty if frozen
  std::optional<parallel::LowRankTerm> adapter_;
};

/// Product of low rank, y = norm(x W_down^T) W_up^T. W_down is replicated, W_up column-parallel. The norm is that of
/// QK norm, if the model has it.
class LowRankLinear {
 public:
  /// State of one micro-batch between forward and backward, [local rows, rank].
  struct Saved {
    TensorView latent;  ///< x W_down^T before the norm; without one it is not read
    TensorView normed;
    NormStatistics statistics;
  };

  /// Adds `prefix`_down.weight [rank + further, hidden], the norm `prefix`_ln.* [rank] if any, and `prefix`_up.weight
  /// [heads, channels, rank] split along heads.
  static void declare(ParameterList& list, const ModelConfig& config, const std::string& prefix, std::int64_t rank,
                      std::int64_t further, std::int64_t channels);
  LowRankLinear(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                const std::string& prefix, const ModelConfig& config, std::int64_t rank);

  std::int64_t rank() const { return rank_; }
  Saved make_saved(const LayerShape& shape, Arena& arena) const;
  TensorView make_gradient(const LayerShape& shape, Arena& arena) const;

  /// x [local rows, hidden], y [rows, outputs], overwritten.
  void forward(ConstTensorView x, const Saved& saved, TensorView y) const;
  /// Overwrites `dlatent`, the gradient of x W_down^T, and dx or with `adds` adds to it.
  void backward_input(ConstTensorView dy, ConstTensorView x, const Saved& saved, TensorView dlatent, TensorView dx,
                      bool adds, parallel::WeightGradient weights) const;
  void backward_weight(ConstTensorView dy, ConstTensorView x, const Saved& saved, ConstTensorView dlatent) const;

 private:
  std::int64_t rank_;
  ReplicatedLinear down_;
  std::optional<Norm> norm_;
  parallel::ColumnParallelLinear up_;
};

/// Queries, keys and values of multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434, section 2.1), for a
/// layer input x [s_local, b, h], before the scores. With [u; w] the concatenation and R the rotation:
///   queries: q = x W_q^T, or of low rank; head i has [q_i; R r_i], its last `rotary_dim` channels rotate;
///   keys: head i has [k_i; R r]: k_i is of low rank, r = x W_r^T is the same for all heads;
///   values: v_i, of the same latent as k_i.
/// The kernels of attention have one size of heads: values are padded with zeros to that of queries and keys, which is
/// exact, and the output of the heads is 0 there.
class LatentHeads {
 public:
  /// State of one micro-batch between forward and backward.
  struct Saved {
    LowRankLinear::Saved queries;  ///< state of queries of low rank
    LowRankLinear::Saved keys;     ///< state of keys and values
    TensorView shared;             ///< [local rows, rotary_dim]: R r
  };
  /// Gradients that backward_weight reads, besides that of the queries.
  struct Gradients {
    TensorView queries;  ///< gradient of the latent, [local rows, rank]
    TensorView keys;
    TensorView shared;    ///< gradient of r
    TensorView expanded;  ///< gradient of k_i and v_i: [rows, a_local (head_dim + value_dim)]
  };

  /// Adds `prefix`.q.weight [heads, d, hidden], or of low rank `prefix`.q_down.weight, q_ln and q_up (LowRankLinear);
  /// for k_i and v_i `prefix`.kv_down.weight [kv_rank + rotary_dim, hidden], whose last rows are W_r, kv_ln, and
  /// kv_up.weight [heads, head_dim + value_dim, kv_rank].
  static void declare(ParameterList& list, const ModelConfig& config, const std::string& prefix);
  LatentHeads(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
              const std::string& prefix, const ModelConfig& config, const RotaryEmbedding& rotary);

  Saved make_saved(const LayerShape& shape, Arena& arena) const;
  Gradients make_gradients(const LayerShape& shape, Arena& arena) const;

  /// Overwrites `qkv`, laid out as SelfAttention::Saved::qkv, and `saved`. x is [local rows, h].
  void forward(const LayerShape& shape, ConstTensorView x, const Saved& saved, TensorView qkv) const;
  /// Overwrites dx from `dqkv`, and fills `gradients`. Replaces the queries of dqkv by their gradient before rotation.
  void backward_input(const LayerShape& shape, ConstTensorView x, const Saved& saved, TensorView dqkv,
                      const Gradients& gradients, TensorView dx, parallel::WeightGradient weights) const;
  /// Reads the queries of dqkv.
  void backward_weight(const LayerShape& shape, ConstTensorView x, const Saved& saved, ConstTensorView dqkv,
                       const Gradients& gradients) const;
  /// Moves the gradients that backward_weight reads to tensors of `saved`, and to the keys and values of `qkv`.
  void keep_for_weights(const LayerShape& shape, const Saved& saved, TensorView qkv, Gradients& gradients) const;

 private:
  /// Queries within `qkv` as a matrix [rows, a_local d].
  template <class View>
  static View queries_of(const LayerShape& shape, View qkv) {
    const std::int64_t n = shape.rows(), columns = shape.attention_columns();
    return qkv.flat(0, n * columns).reshape({n, columns});
  }
  std::int64_t expanded_columns(const LayerShape& shape) const { return shape.a_local * (plain_ + shape.value_dim()); }
  /// k_i (`channel` 0) or v_i (`channel` plain_) within `expanded`.
  template <class View>
  HeadsOf<View> expanded_heads(const LayerShape& shape, View expanded, std::int64_t channel) const;
  HeadsShape part(const LayerShape& shape, std::int64_t channels) const {
    return {shape.s, shape.b, shape.a_local, channels};
  }
  /// Rotates the last channels of the queries of qkv.
  void rotate_queries(const LayerShape& shape, TensorView qkv, Rotation rotation) const;
  /// Rotates this rank's rows of the keys that the heads share.
  void rotate_shared(const LayerShape& shape, TensorView shared, Rotation rotation) const;
  /// dshared = gradient of R r: the sum over all heads of the keys' last channels.
  void sum_shared(const LayerShape& shape, ConstTensorView dqkv, TensorView dshared) const;

  parallel::TensorContext context_;
  RotaryEmbedding rotary_;
  std::int64_t plain_;  // channels of a head that do not rotate
  std::optional<parallel::ColumnParallelLinear> queries_;
  std::optional<LowRankLinear> low_rank_queries_;
  LowRankLinear keys_;
  ReplicatedLinear shared_;
};

}  // namespace trireme::model
