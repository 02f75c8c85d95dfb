#pragma once

#include <memory>
#include <string>

#include "src/model/blocks/layer_shape.hpp"
#include "src/model/blocks/norm.hpp"
#include "src/parallel/tensor/linear.hpp"

namespace trireme::model {

/// Feed-forward block of a layer: y = F(x), both [s_local, b, h]. The residual form adds its output bias, if any.
/// Kinds derive from it; the dense ones are in feed_forward.cpp.
class FeedForward {
 public:
  /// State of one micro-batch between forward and backward. Kinds add their own.
  struct Saved {
    virtual ~Saved() = default;
    ConstTensorView input;
  };
  /// Gradients that backward_weight reads.
  struct Gradients {
    virtual ~Gradients() = default;
    TensorView output;  ///< [s_local, b, h], of y
  };

  /// Adds the parameters of the model's kind: `prefix`.*.
  static void declare(ParameterList& list, const ModelConfig& config, const std::string& prefix);
  /// Makes the model's kind with these parameters.
  static std::unique_ptr<FeedForward> make(const parallel::TensorContext& context,
                                           const parallel::ParameterBuffer& parameters, const std::string& prefix,
                                           const ModelConfig& config);
  virtual ~FeedForward() = default;

  const OutputBias& output_bias() const { return output_bias_; }

  /// `selective` recomputation keeps less.
  virtual std::unique_ptr<Saved> make_saved(const LayerShape& shape, bool selective, Arena& arena) const = 0;
  virtual std::unique_ptr<Gradients> make_gradients(const LayerShape& shape, Arena& arena) const = 0;

  /// Overwrites y; x must outlive `saved`. An empty y only fills `saved`.
  virtual void forward(const LayerShape& shape, ConstTensorView x, Saved& saved, TensorView y) const = 0;
  /// Computes dx from gradients.output, overwritten, and fills the rest of `gradients`. Gradients of weights whose
  /// input is recomputed are accumulated here even if `weights` is later.
  virtual void backward_input(const LayerShape& shape, const Saved& saved, Gradients& gradients, TensorView dx,
                              parallel::WeightGradient weights) const = 0;
  /// Accumulates the weight gradients that backward_input left.
  virtual void backward_weight(const LayerShape& shape, const Saved& saved, const Gradients& gradients) const = 0;
  /// Moves the gradients that backward_weight reads to tensors of `saved` that are no longer read, and the gradient of
  /// the output to `unread`, which has the residual stream's shape.
  virtual void keep_for_weights(const Saved& saved, Gradients& gradients, TensorView unread) const = 0;

 protected:
  /// Takes the bias `prefix`.proj.bias.
  FeedForward(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
              const std::string& prefix)
      : context_(context), output_bias_(parameters, prefix + ".proj.bias") {}

  parallel::TensorContext context_;

 private:
  OutputBias output_bias_;
};

}  // namespace trireme::model
