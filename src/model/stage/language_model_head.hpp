#pragma once

#include "src/model/layers/transformer_layer.hpp"
#include "src/model/stage/micro_batch.hpp"
#include "src/parallel/tensor/linear.hpp"
#include "src/parallel/tensor/vocabulary.hpp"

namespace trireme::model {

/// Head of a causal language model: final norm, logits of the next token and their cross entropy. It sums the weighted
/// token losses of all micro-batches.
class LanguageModelHead {
 public:
  /// State that one micro-batch keeps between forward and backward.
  struct Saved {
    Arena::Mark mark;  // all that was allocated before
    ConstTensorView input;
    TensorView normed;
    NormStatistics statistics;
    TensorView logits;
    parallel::VocabularyParallelCrossEntropy::Saved loss;
  };

  /// Takes the parameters ln_f.* and the output matrix, which is `wte` where the two are tied.
  LanguageModelHead(const parallel::TensorContext& context, const parallel::VocabularyPartition& vocabulary,
                    const parallel::ParameterBuffer& parameters, const ModelConfig& config);

  /// Adds the micro-batch's losses to the sum. x [s_local, b, h] must live as long as the result, which comes from
  /// `arena`.
  Saved forward(const LayerShape& shape, const MicroBatch& batch, ConstTensorView x, Arena& arena);
  /// dx [s_local, b, h] from the loss, overwritten; accumulates the parameters' gradients. `loss_gradient` is the
  /// gradient of the sum of losses, for a micro-batch without one of its own.
  void backward(const LayerShape& shape, const MicroBatch& batch, double loss_gradient, const Saved& saved,
                TensorView dx) const;
  /// Logits of x, overwritten: this rank's columns, [rows, vocabulary rows].
  void logits(const LayerShape& shape, ConstTensorView x, TensorView logits) const;
  std::int64_t vocabulary_rows() const { return vocabulary_rows_; }

  /// The sum of losses since the last call. Waits for the device.
  double take_loss_sum();

 private:
  void project(const LayerShape& shape, ConstTensorView x, TensorView normed, const NormStatistics& statistics,
               TensorView logits) const;

  parallel::TensorContext context_;
  std::int64_t vocabulary_rows_;
  double epsilon_;
  NormParameters norm_;
  parallel::ColumnParallelLinear output_;
  parallel::VocabularyParallelCrossEntropy cross_entropy_;
  Tensor loss_sum_;  // [1] fp64
};

}  // namespace trireme::model
