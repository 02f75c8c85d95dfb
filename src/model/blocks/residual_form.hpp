#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/model/blocks/layer_shape.hpp"
#include "src/model/blocks/norm.hpp"

namespace trireme::model {

/// Norms of a layer, and sums of the residual stream x with the layer's two branches F_1 (attention) and F_2
/// (feed-forward). Adds each branch's output bias b with dropout. A model is pre-norm, parallel, post-norm or has norms
/// after branches, or before and after them.
class ResidualForm {
 public:
  /// State of one micro-batch between forward and backward, [s_local, b, h].
  struct Saved {
    ConstTensorView input;
    TensorView normed_1;  ///< result of the first norm; with norms after branches, its input
    NormStatistics statistics_1;
    TensorView middle;  ///< first sum of stream and branch
    /// Pre-norm, parallel: result of the second norm or the shared one. Post-norm: second sum. Norms after branches:
    /// input of the second.
    TensorView second;
    NormStatistics statistics_2;
    TensorView result_1, result_2;  ///< results of the branches, with norms before and after them
    NormStatistics result_statistics_1, result_statistics_2;
  };
  /// A branch in forward.
  struct Branch {
    std::function<void(ConstTensorView x, TensorView y)> run;  ///< y = F(x); with an empty y only saves for backward
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

  /// Adds the norms of branch 1 or 2 of the layer `prefix`: ln_1.* or, unless it is shared, ln_2.*; with norms before
  /// and after branches also out_ln_1.* or out_ln_2.* of its result.
  static void declare(ParameterList& list, const ModelConfig& config, const std::string& prefix, int branch);
  /// Makes the model's form with these parameters of the layer `prefix`.
  static std::unique_ptr<ResidualForm> make(const parallel::TensorContext& context,
                                            const parallel::ParameterBuffer& parameters, const std::string& prefix,
                                            const ModelConfig& config);
  ResidualForm(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
               const std::string& prefix, const ModelConfig& config);
  virtual ~ResidualForm() = default;

  virtual Saved make_saved(const LayerShape& shape, Arena& arena) const;
  /// Returns a tensor like the residual stream that only `backward` reads.
  virtual TensorView unread_by_weights(const Saved& saved) const { return saved.middle; }
  /// Overwrites y; x must outlive `saved`. An empty y only fills `saved`.
  virtual void forward(const LayerShape& shape, ConstTensorView x, const Branch& attention, const Branch& feed_forward,
                       Saved& saved, TensorView y) const = 0;
  /// Overwrites dx; accumulates the gradients of norms and biases.
  virtual void backward(const LayerShape& shape, ConstTensorView dy, const BranchGradient& attention,
                        const BranchGradient& feed_forward, const Saved& saved, TensorView dx) const = 0;

 protected:
  /// Runs backward of a branch from the gradient dsum of its sum; overwrites dx.
  void backward_branch(const BranchGradient& branch, ConstTensorView dsum, TensorView dx) const;
  /// result = F(x) + b,  normed = norm(result).
  void run_normed(const Branch& branch, ConstTensorView x, const Norm& norm, TensorView result,
                  const NormStatistics& statistics, TensorView normed) const;
  /// Runs backward of a branch and the norm of its `result` from the gradient dsum of its sum; overwrites dx.
  void backward_normed(const BranchGradient& branch, ConstTensorView dsum, const Norm& norm, ConstTensorView result,
                       const NormStatistics& statistics, TensorView dx) const;

  parallel::TensorContext context_;
  Norm norm_1_, norm_2_;
};

}  // namespace trireme::model
