#pragma once

#include "src/model/heads/loss_sum.hpp"
#include "src/model/heads/output_head.hpp"
#include "src/parallel/tensor/linear.hpp"
#include "src/parallel/tensor/vocabulary.hpp"

namespace trireme::model {

/// Prediction of a token at every position: logits over the vocabulary, split over the tensor group, and their cross
/// entropy. Sums the weighted losses of all micro-batches.
class TokenPrediction {
 public:
  /// State between forward and backward.
  struct Saved {
    ConstTensorView input;
    TensorView logits;
    parallel::VocabularyParallelCrossEntropy::Saved loss;
  };

  /// logits = x table^T + bias; `table` [vocabulary, h], `bias` [vocabulary] or null.
  TokenPrediction(const parallel::TensorContext& context, const parallel::VocabularyPartition& vocabulary,
                  const parallel::Parameter& table, const parallel::Parameter* bias);

  /// Adds the losses of x [s_local, b, h] to the sum. x must live as long as the result, which comes from `arena`.
  Saved forward(const LayerShape& shape, const MicroBatch& batch, ConstTensorView x, Arena& arena);
  /// dx [s_local, b, h], overwritten; accumulates the gradients of table and bias. Consumes the logits.
  void backward(const LayerShape& shape, const MicroBatch& batch, double loss_gradient, const Saved& saved,
                TensorView dx) const;
  /// Logits of x, overwritten: this rank's columns, [rows, vocabulary rows].
  void logits(const LayerShape& shape, ConstTensorView x, TensorView logits) const {
    output_.forward(shape.as_rows(x), Activation::none, {}, logits);
  }
  std::int64_t vocabulary_rows() const { return vocabulary_rows_; }
  /// Returns the sum of losses since the last call. Waits for the device.
  double take_loss_sum() { return loss_sum_.take(); }

 private:
  parallel::TensorContext context_;
  std::int64_t vocabulary_rows_;
  parallel::ColumnParallelLinear output_;
  parallel::VocabularyParallelCrossEntropy cross_entropy_;
  LossSum loss_sum_;
};

}  // namespace trireme::model
