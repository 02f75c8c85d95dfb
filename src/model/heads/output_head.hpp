#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "src/model/blocks/norm.hpp"
#include "src/model/heads/token_prediction.hpp"
#include "src/model/micro_batch.hpp"

namespace trireme::model {

/// Sums of weighted losses since the last query.
struct LossSums {
  static constexpr std::int64_t kinds = 3;
  double tokens = 0;   ///< losses of tokens
  double samples = 0;  ///< losses of samples
  double ahead = 0;    ///< losses of further tokens: mean over the depths of AheadPrediction
};

/// Head of a model, on the last stage: applies the final norm to the result of the last layer, computes losses from it,
/// and sums them over micro-batches. The head of a post-norm model has no norm. Heads derive from it and add their
/// predictions.
class OutputHead {
 public:
  /// Input and result of the final norm, [s_local, b, h]: the same tensor in a post-norm model.
  struct Normed {
    ConstTensorView input, output;
    NormStatistics statistics;
  };
  /// State that one micro-batch keeps between forward and backward.
  struct Saved {
    virtual ~Saved() = default;
    Arena::Mark mark;  ///< start of the head's allocations
    Normed norm;
  };

  /// Makes the model's head with its parameters. Samples have at most `sequence` positions, micro-batches `b` samples;
  /// `loss_chunks` are those of TokenPrediction.
  static std::unique_ptr<OutputHead> make(const parallel::TensorContext& context,
                                          const parallel::VocabularyPartition& vocabulary,
                                          const parallel::ParameterBuffer& parameters, const ModelConfig& config,
                                          std::int64_t sequence, std::int64_t b, std::int64_t loss_chunks);
  virtual ~OutputHead() = default;

  /// Adds the micro-batch's losses to the sums, unless the head leaves that to backward. x [s_local, b, h] must outlive
  /// the result, whose tensors come from `arena`.
  std::unique_ptr<Saved> forward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                                 ConstTensorView x, Arena& arena);
  /// Computes dx [s_local, b, h] from the losses, overwritten; accumulates the parameters' gradients. `mode` has the
  /// gradients of the loss sums, unless the micro-batch has its own. `dnormed` is a further gradient of the normed
  /// result, or empty.
  void backward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode, const Saved& saved,
                ConstTensorView dnormed, TensorView dx);
  /// Overwrites tokens [1] and samples [1], fp64, with the sums of these losses since the last call, if there are such
  /// losses. Stream-ordered.
  virtual void take_loss_sums(TensorView tokens, TensorView samples) = 0;
  /// Returns the class scores of the samples evaluated since the last call: [samples, classes], row-major, in the order
  /// of the micro-batches. Empty for heads that do not classify samples, and on ranks without the first position.
  /// Waits for the device.
  virtual std::vector<double> take_sample_scores() { return {}; }

 protected:
  /// Takes the parameters ln_f.*, if any.
  OutputHead(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
             const ModelConfig& config);

  /// `forward` after the norm: makes the predictions from x, the normed result.
  virtual std::unique_ptr<Saved> predict(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                                         ConstTensorView x, Arena& arena) = 0;
  /// `backward` before the norm: overwrites dx, the gradient of the normed result.
  virtual void predict_backward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                                const Saved& saved, TensorView dx) = 0;
  /// Applies the final norm, if any. The result's tensors come from `arena`.
  Normed normalise(const LayerShape& shape, ConstTensorView x, Arena& arena) const;

  parallel::TensorContext context_;

 private:
  std::optional<Norm> norm_;
};

/// Head of a causal language model: predicts the next token of each position.
class LanguageModelHead final : public OutputHead {
 public:
  /// Takes the output matrix, which is `wte` if the two are tied.
  LanguageModelHead(const parallel::TensorContext& context, const parallel::VocabularyPartition& vocabulary,
                    const parallel::ParameterBuffer& parameters, const ModelConfig& config, std::int64_t loss_chunks);

  void take_loss_sums(TensorView tokens, TensorView) override { tokens_.take_loss_sum(tokens); }

  /// Overwrites `logits` with those of x: this rank's columns, [rows, vocabulary rows].
  void logits(const LayerShape& shape, ConstTensorView x, TensorView logits) const;
  std::int64_t vocabulary_rows() const { return tokens_.vocabulary_rows(); }

 private:
  struct Saved final : OutputHead::Saved {
    TokenPrediction::Saved tokens;
  };
  std::unique_ptr<OutputHead::Saved> predict(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                                             ConstTensorView x, Arena& arena) override;
  void predict_backward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                        const OutputHead::Saved& saved, TensorView dx) override;

  TokenPrediction tokens_;
};

}  // namespace trireme::model
