#pragma once

#include <memory>
#include <vector>

#include "src/model/blocks/layer_shape.hpp"
#include "src/model/heads/loss_sum.hpp"
#include "src/model/micro_batch.hpp"
#include "src/parallel/tensor/tensor_context.hpp"

namespace trireme::model {

/// Part of a head: a prediction about each sample. Sums the weighted losses of all micro-batches.
class SamplePrediction {
 public:
  /// State between forward and backward.
  struct Saved {
    virtual ~Saved() = default;
  };

  virtual ~SamplePrediction() = default;
  /// Adds the losses of x [s_local, b, h] to the sum, with the micro-batch's sample labels and weights. Without a
  /// backward it keeps the scores. x must live as long as the result, whose tensors come from `arena`. Collective over
  /// the ranks of the sequence.
  virtual std::unique_ptr<Saved> forward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                                         ConstTensorView x, Arena& arena) = 0;
  /// Adds the losses' gradient to dx [s_local, b, h]; accumulates the parameters' gradients. Consumes the logits.
  /// Collective as `forward`.
  virtual void backward(const LayerShape& shape, const MicroBatch& batch, double loss_gradient, const Saved& saved,
                        TensorView dx) const = 0;
  /// Returns the sum of losses since the last call, 0 on ranks without the first position. Waits for the device.
  double take_loss_sum() { return loss_sum_.take(); }
  /// OutputHead::take_sample_scores.
  std::vector<double> take_scores();

 protected:
  explicit SamplePrediction(const parallel::TensorContext& context) : context_(context), loss_sum_(context.backend) {}

  /// Returns whether this rank has the first position, and so counts the losses and keeps the scores.
  bool holds_first_position(const LayerShape& shape) const {
    return shape.residual_positions(context_.tensor_group.rank())[0] == 0;
  }
  /// Returns memory of an evaluated micro-batch's scores: fp64, all scores of a sample before those of the next.
  TensorView make_scores(const Shape& shape) { return scores_.emplace_back(context_.backend, DType::fp64, shape); }

  parallel::TensorContext context_;
  LossSum loss_sum_;

 private:
  std::vector<Tensor> scores_;  // one tensor for each micro-batch evaluated
};

}  // namespace trireme::model
