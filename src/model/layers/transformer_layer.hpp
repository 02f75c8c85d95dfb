#pragma once

#include "src/model/layers/attention.hpp"
#include "src/model/layers/mlp.hpp"
#include "src/model/layers/norm_parameters.hpp"

namespace trireme::model {

/// One transformer layer. Pre-norm (Radford et al. 2019):
///   middle = x + dropout(attention(norm_1(x)) + b),  y = middle + dropout(mlp(norm_2(middle)) + b).
/// Post-norm (Vaswani et al. 2017, arXiv:1706.03762):
///   normed_1 = norm_1(x + dropout(attention(x) + b)),  y = norm_2(normed_1 + dropout(mlp(normed_1) + b)).
class TransformerLayer {
 public:
  struct Saved {
    ConstTensorView input;
    TensorView normed_1;
    NormStatistics statistics_1;
    SelfAttention::Saved attention;
    TensorView middle;    // first sum of residual and branch
    TensorView normed_2;  // pre-norm only
    TensorView sum_2;     // post-norm only: second sum
    NormStatistics statistics_2;
    Mlp::Saved mlp;
    static Saved allocate(const LayerShape& shape, bool selective, Arena& arena);
  };
  struct Gradients {
    SelfAttention::Gradients attention;
    Mlp::Gradients mlp;
    static Gradients allocate(const LayerShape& shape, bool selective, Arena& arena);
  };

  /// Takes the parameters h.`layer`.*; `layer` counts over the whole model.
  TransformerLayer(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                   const ModelConfig& config, int layer, std::int64_t first_head);

  /// y [s_local, b, h], overwritten; x must live as long as `saved`. Where y is empty only `saved` is made.
  void forward(const LayerShape& shape, ConstTensorView x, const DropoutPlan& dropout, Saved& saved,
               TensorView y) const;
  /// Computes dx from dy, overwritten, and the gradients of norms and output biases, accumulated; fills `gradients`.
  void backward_input(const LayerShape& shape, ConstTensorView dy, const DropoutPlan& dropout, const Saved& saved,
                      Gradients& gradients, TensorView dx, parallel::WeightGradient weights) const;
  /// Moves the `gradients` that backward_weight needs to tensors of `saved` that are not read again. So a micro-batch
  /// that waits for backward_weight takes no more memory than one that waits for its backward.
  void keep_for_weights(const Saved& saved, Gradients& gradients) const;
  /// Accumulates the gradients of the matrices, where backward_input left them for later.
  void backward_weight(const LayerShape& shape, const Saved& saved, const Gradients& gradients) const;

  /// Runs forward on the newest positions in generation, without dropout: see SelfAttention::forward_cached.
  void forward_cached(const LayerShape& shape, ConstTensorView x, const CachedTexts& texts, const KeyValueCache& cache,
                      TensorView y) const;

 private:
  void forward_pre_norm(const LayerShape& shape, ConstTensorView x, const DropoutPlan& dropout, Saved& saved,
                        TensorView y) const;
  void forward_post_norm(const LayerShape& shape, ConstTensorView x, const DropoutPlan& dropout, Saved& saved,
                         TensorView y) const;
  /// NormKernels::normalise_backward with the parameters `norm`.
  void backward_norm(const NormParameters& norm, ConstTensorView dy, ConstTensorView x,
                     const NormStatistics& statistics, ConstTensorView dresidual, TensorView dx) const;

  parallel::TensorContext context_;
  int layer_;
  double epsilon_;
  NormParameters norm_1_;
  SelfAttention attention_;
  TensorView attention_bias_;
  TensorView attention_bias_gradient_;
  NormParameters norm_2_;
  Mlp mlp_;
  TensorView mlp_bias_;
  TensorView mlp_bias_gradient_;
};

}  // namespace trireme::model
