#pragma once

#include "src/model/layers/dense.hpp"
#include "src/model/stage/loss_sum.hpp"
#include "src/model/stage/output_head.hpp"

namespace trireme::model {

/// Classification of whole samples by their first position: logits = tanh(x[0] pooler^T + b) classifier^T + c, and
/// their cross entropy (Devlin et al. 2019). Sums the weighted losses of all micro-batches. The parameters are whole on
/// every rank; only ranks that hold the first position compute.
class SampleClassification {
 public:
  /// State between forward and backward; empty on ranks without the first position.
  struct Saved {
    ConstTensorView first;      // [b, h]: the first position's rows
    TensorView pre_activation;  // [b, h]
    TensorView pooled;          // [b, h]
    TensorView logits;          // [b, classes]
    TensorView maximum;         // [b] A
    TensorView sum_exponentials;
  };

  /// Takes the parameters pooler.* and `classifier`.*; the latter's rows are the classes.
  SampleClassification(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                       const std::string& classifier);

  /// Adds the losses of x [s_local, b, h] to the sum, with the micro-batch's sample labels and weights. Without a
  /// backward it keeps the scores. x must live as long as the result, which comes from `arena`.
  Saved forward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode, ConstTensorView x,
                Arena& arena);
  /// Adds the losses' gradient to the first position's rows of dx [s_local, b, h]; accumulates the parameters'
  /// gradients.
  void backward(const LayerShape& shape, const MicroBatch& batch, double loss_gradient, const Saved& saved,
                TensorView dx) const;
  /// Returns the sum of losses since the last call, 0 on ranks without the first position. Waits for the device.
  double take_loss_sum() { return loss_sum_.take(); }
  /// OutputHead::take_sample_scores.
  std::vector<double> take_scores();

 private:
  bool holds_first_position(const LayerShape& shape) const {
    return shape.residual_positions(context_.tensor_group.rank())[0] == 0;
  }
  VocabularyShard classes() const { return {0, classifier_.outputs()}; }

  parallel::TensorContext context_;
  Dense pooler_;
  Dense classifier_;
  LossSum loss_sum_;
  std::vector<Tensor> scores_;  // [b, classes] fp64 of each micro-batch evaluated
};

}  // namespace trireme::model
