#pragma once

#include "src/model/heads/loss_sum.hpp"
#include "src/model/micro_batch.hpp"
#include "src/parallel/tensor/linear.hpp"
#include "src/parallel/tensor/vocabulary.hpp"

namespace trireme::model {

/// Prediction of a token by each of n rows: logits over the vocabulary, split over the tensor group, and their cross
/// entropy. The rows are all of a micro-batch, or MicroBatch::predictions. N of them are on this rank: n, or n / t with
/// sequence parallelism. Sums the weighted losses of all micro-batches.
///
/// With several chunks of rows, only one chunk's logits exist at a time. If a backward follows, forward leaves the
/// losses to it: there each chunk's logits yield both its losses and its gradients, so nothing is computed twice. The
/// gradients of table and bias are accumulated chunk by chunk.
class TokenPrediction {
 public:
  /// State between forward and backward; with chunks only the input.
  struct Saved {
    ConstTensorView input;                                 // [N, h]
    TensorView logits;                                     // [n, vocabulary rows], or their gradient already
    parallel::VocabularyParallelCrossEntropy::Saved loss;  // without the gradient
  };

  /// logits = x table^T + bias, and if `soft_cap` is above 0 their cap (ElementwiseKernels::soft_cap); `table`
  /// [vocabulary, h], `bias` [vocabulary] or null. Splits a micro-batch's rows into at most `chunks` chunks of equal
  /// size; the last one may be smaller.
  TokenPrediction(const parallel::TensorContext& context, const parallel::VocabularyPartition& vocabulary,
                  const parallel::Parameter& table, const parallel::Parameter* bias, double soft_cap,
                  std::int64_t chunks);

  /// Adds the losses of x [N, h] to the sum, unless chunks leave them to backward. x must outlive the result, whose
  /// tensors come from `arena`.
  Saved forward(const MicroBatch& batch, const StageMode& mode, ConstTensorView x, Arena& arena);
  /// Overwrites dx [N, h] and the logits; accumulates the gradients of table and bias.
  void backward(const MicroBatch& batch, const StageMode& mode, const Saved& saved, TensorView dx);
  /// Overwrites `logits` with those of x [N, h]: this rank's columns, [n, vocabulary rows].
  void logits(ConstTensorView x, TensorView logits) const {
    output_.forward(x, Activation::none, {}, logits);
    cap(logits);
  }
  std::int64_t vocabulary_rows() const { return vocabulary_rows_; }
  /// sum [1] fp64 = the sum of losses since the last call. Stream-ordered.
  void take_loss_sum(TensorView sum) { loss_sum_.take(sum); }

 private:
  using LossStatistics = parallel::VocabularyParallelCrossEntropy::Saved;
  struct Chunk {
    std::int64_t rows = 0;
    TensorView logits;  // [rows, vocabulary rows]
    LossStatistics loss;
  };
  bool in_chunks() const { return chunks_ > 1; }
  /// Applies the soft cap, if any.
  void cap(TensorView logits) const {
    if (soft_cap_ > 0) context_.backend.elementwise().soft_cap(context_.stream(), soft_cap_, logits);
  }
  /// Allocates a chunk of `n` rows of type `dtype`.
  Chunk allocate_chunk(DType dtype, std::int64_t n) const;
  /// Gradients of the losses, in the work space.
  ConstTensorView gradient_of_losses(const MicroBatch& batch, const StageMode& mode) const {
    return model::loss_gradient(context_.backend, batch.loss_weights, batch.loss_gradient, mode.loss_gradient,
                                context_.workspace);
  }
  /// Returns whether a pass with backward computes losses and the logits' gradient at once.
  bool is_one_pass(const MicroBatch& batch) const { return cross_entropy_.is_whole() && !batch.rivals; }
  /// Computes the logits and losses of `x` [rows, h], the rows of the gathered input from `begin` on, and with the
  /// losses' `gradient` [n] A that of the logits. Returns the part of `chunk` that they use. `losses` [n] A belong to
  /// the micro-batch.
  Chunk run_chunk(const MicroBatch& batch, const Chunk& chunk, std::int64_t begin, ConstTensorView x, TensorView losses,
                  ConstTensorView gradient = {}) const;

  parallel::TensorContext context_;
  std::int64_t vocabulary_rows_;
  std::int64_t chunks_;
  double soft_cap_;
  parallel::ColumnParallelLinear output_;
  parallel::VocabularyParallelCrossEntropy cross_entropy_;
  LossSum loss_sum_;
};

}  // namespace trireme::model
