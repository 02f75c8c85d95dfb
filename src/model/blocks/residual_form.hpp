#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/model/blocks/dropout_plan.hpp"
#include "src/model/blocks/layer_shape.hpp"
#include "src/model/blocks/norm.hpp"

namespace trireme::model {

/// Norms of a layer, and sums of the residual stream x and its two branches F_1 (attention) and F_2 (feed-forward),
/// whose output biases b it adds with dropout. One file a form: pre-norm, post-norm.
class ResidualForm {
 public:
  /// State of one micro-batch between forward and backward, [s_local, b, h].
  struct Saved {
    ConstTensorView input;
    TensorView normed_1;  ///< result of the first norm
    NormStatistics statistics_1;
    TensorView middle;  ///< first sum of stream and branch; not read by backward_weight
    TensorView second;  ///< pre-norm: result of the second norm; post-norm: second sum
    NormStatistics statistics_2;
  };
  /// A branch in forward.
  struct Branch {
    std::function<void(ConstTensorView x, TensorView y)> run;  ///< y = F(x); an empty y only keeps for backward
    TensorView bias;
    Dropout dropout;
  };
  /// A branch in backward.
  struct BranchGradient {
    TensorView output;                       ///< gradient of F's result, overwritten before `run`
    std::function<void(TensorView dx)> run;  ///< overwrites dx
    TensorView bias_gradient;
    Dropout dropout;
  };

  /// Adds the norm of branch 1 or 2 of the layer `prefix`: ln_1.* or ln_2.*.
  static void declare(ParameterList& list, const ModelConfig& config, const std::string& prefix, int branch);
  /// Makes the model's form over these parameters.
  static std::unique_ptr<ResidualForm> make(const parallel::TensorContext& context,
                                            const parallel::ParameterBuffer& parameters, const std::string& prefix,
                                            const ModelConfig& config);
  /// Takes ln_1.* and ln_2.* of the layer `prefix`.
  ResidualForm(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
               const std::string& prefix, const ModelConfig& config);
  virtual ~ResidualForm() = default;

  Saved make_saved(const LayerShape& shape, Arena& arena) const;
  /// Overwrites y; x must live as long as `saved`. An empty y only makes `saved`.
  virtual void forward(const LayerShape& shape, ConstTensorView x, const Branch& attention, const Branch& feed_forward,
                       Saved& saved, TensorView y) const = 0;
  /// Overwrites dx; accumulates the gradients of norms and biases.
  virtual void backward(const LayerShape& shape, ConstTensorView dy, const BranchGradient& attention,
                        const BranchGradient& feed_forward, const Saved& saved, TensorView dx) const = 0;

 protected:
  /// y = residual + dropout(x + bias), overwritten.
  void add(ConstTensorView x, const Branch& branch, ConstTensorView residual, TensorView y) const;
  /// Runs backward of a branch from the gradient dsum of its sum; overwrites dx.
  void backward_branch(const BranchGradient& branch, ConstTensorView dsum, TensorView dx) const;

  parallel::TensorContext context_;
  Norm norm_1_, norm_2_;
};

/// middle = x + dropout(F_1(norm_1(x)) + b_1),  y = middle + dropout(F_2(norm_2(middle)) + b_2) (Radford et al. 2019).
class PreNorm final : public ResidualForm {
 public:
  using ResidualForm::ResidualForm;
  void forward(const LayerShape& shape, ConstTensorView x, const Branch& attention, const Branch& feed_forward,
               Saved& saved, TensorView y) const override;
  void backward(const LayerShape& shape, ConstTensorView dy, const BranchGradient& attention,
                const BranchGradient& feed_forward, const Saved& saved, TensorView dx) const override;
};

/// normed_1 = norm_1(x + dropout(F_1(x) + b_1)),  y = norm_2(normed_1 + dropout(F_2(normed_1) + b_2)) (Vaswani et al.
/// 2017, arXiv:1706.03762).
class PostNorm final : public ResidualForm {
 public:
  using ResidualForm::ResidualForm;
  void forward(const LayerShape& shape, ConstTensorView x, const Branch& attention, const Branch& feed_forward,
               Saved& saved, TensorView y) const override;
  void backward(const LayerShape& shape, ConstTensorView dy, const BranchGradient& attention,
                const BranchGradient& feed_forward, const Saved& saved, TensorView dx) const override;
};

}  // namespace trireme::model
