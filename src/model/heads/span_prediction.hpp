#pragma once

#include "src/model/heads/loss_sum.hpp"
#include "src/model/heads/output_head.hpp"
#include "src/model/layers/dense.hpp"

namespace trireme::model {

/// Prediction of the first and the last position of an answer: two logits a position, x W^T + b, and for each of the
/// two a softmax over the positions of the sample. The loss of a sample is the mean of both cross entropies (Devlin et
/// al. 2019). Every rank of a divided sequence gathers all logits.
class SpanPrediction {
 public:
  /// State between forward and backward.
  struct Saved {
    ConstTensorView input;  // [s_local, b, h]
    TensorView logits;      // [2, b, s]: of all positions of the sequence, first positions before last ones
    TensorView statistics;  // [4, b] A: maximum and sum of exponentials for each of the two
  };

  /// Takes the parameters spans.*. Samples have `sequence` positions on all context ranks together, micro-batches `b`
  /// samples.
  SpanPrediction(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                 std::int64_t sequence, std::int64_t b);

  /// Adds the losses of x [s_local, b, h] to the sum. Without a backward it keeps the scores. x must live as long as
  /// the result, which comes from `arena`. Collective over the ranks of the sequence.
  Saved forward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode, ConstTensorView x,
                Arena& arena);
  /// dx [s_local, b, h], overwritten; accumulates the parameters' gradients. Consumes the logits.
  void backward(const LayerShape& shape, const MicroBatch& batch, double loss_gradient, const Saved& saved,
                TensorView dx) const;
  /// Returns the sum of losses since the last call, 0 on ranks without the first position. Waits for the device.
  double take_loss_sum() { return loss_sum_.take(); }
  /// OutputHead::take_sample_scores: the logits of all first positions, then those of the last ones.
  std::vector<double> take_scores();

 private:
  parallel::TensorContext context_;
  std::int64_t sequence_;
  std::int64_t b_;
  Dense spans_;
  Tensor ids_;  // [2 b s]: element of [s, b, 2] that each of [2, b, s] is
  LossSum loss_sum_;
  std::vector<Tensor> scores_;  // [2, b, s] A of each micro-batch evaluated
};

}  // namespace trireme::model
