#pragma once

#include "src/model/blocks/layer_shape.hpp"
#include "src/model/heads/loss_sum.hpp"
#include "src/model/micro_batch.hpp"
#include "src/parallel/tensor/linear.hpp"
#include "src/parallel/tensor/vocabulary.hpp"

namespace trireme::model {

/// Prediction of a token at every position: logits over the vocabulary, split over the tensor group, and their cross
/// entropy. Sums the weighted losses of all micro-batches.
///
/// In several chunks of rows only the logits of one chunk exist at a time. Forward leaves the losses to backward where
/// one follows, because the logits of a chunk give both its losses and its gradients there. So nothing is computed
/// twice. Rows do not depend on one another; the gradients of table and bias are added up chunk by chunk.
class TokenPrediction {
 public:
  /// State between forward and backward; in chunks the input alone.
  struct Saved {
    ConstTensorView input;
    TensorView logits;
    parallel::VocabularyParallelCrossEntropy::Saved loss;
  };

  /// logits = x table^T + bias; `table` [vocabulary, h], `bias` [vocabulary] or null. A micro-batch's rows are
  /// divided into at most `chunks` chunks of one size, the last of what is left.
  TokenPrediction(const parallel::TensorContext& context, const parallel::VocabularyPartition& vocabulary,
                  const parallel::Parameter& table, const parallel::Parameter* bias, std::int64_t chunks);

  /// Adds the losses of x [s_local, b, h] to the sum, unless chunks leave them to backward. x must live as long as the
  /// result, which comes from `arena`.
  Saved forward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode, ConstTensorView x,
                Arena& arena);
  /// dx [s_local, b, h], overwritten; accumulates the gradients of table and bias. Consumes the logits.
  void backward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode, const Saved& saved,
                TensorView dx);
  /// Logits of x, overwritten: this rank's columns, [rows, vocabulary rows].
  void logits(const LayerShape& shape, ConstTensorView x, TensorView logits) const {
    output_.forward(shape.as_rows(x), Activation::none, {}, logits);
  }
  std::int64_t vocabulary_rows() const { return vocabulary_rows_; }
  /// Returns the sum of losses since the last call. Waits for the device.
  double take_loss_sum() { return loss_sum_.take(); }

 private:
  using LossStatistics = parallel::VocabularyParallelCrossEntropy::Saved;
  /// Work space of a chunk of `rows` rows.
  struct Chunk {
    std::int64_t rows = 0;
    TensorView logits;  // [rows, vocabulary rows]
    LossStatistics loss;
  };
  bool in_chunks() const { return chunks_ > 1; }
  Chunk allocate_chunk(const LayerShape& shape) const;
  /// Computes the logits and losses of the rows of the gathered input from `begin` on, `x` [rows, h]. Returns the part
  /// of `chunk` that these rows take. `losses` [s b] A are those of the micro-batch.
  Chunk run_chunk(const MicroBatch& batch, const Chunk& chunk, std::int64_t begin, ConstTensorView x,
                  TensorView losses) const;

  parallel::TensorContext context_;
  std::int64_t vocabulary_rows_;
  std::int64_t chunks_;
  parallel::ColumnParallelLinear output_;
  parallel::VocabularyParallelCrossEntropy cross_entropy_;
  LossSum loss_sum_;
};

}  // namespace trireme::model
