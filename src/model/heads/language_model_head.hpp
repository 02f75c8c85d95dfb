#pragma once

#include "src/model/heads/final_norm.hpp"
#include "src/model/heads/output_head.hpp"
#include "src/model/heads/token_prediction.hpp"

namespace trireme::model {

/// Head of a causal language model: final norm, then the next token of each position.
class LanguageModelHead final : public OutputHead {
 public:
  /// Takes the parameters ln_f.* and the output matrix, which is `wte` where the two are tied. `chunks` are those of
  /// TokenPrediction.
  LanguageModelHead(const parallel::TensorContext& context, const parallel::VocabularyPartition& vocabulary,
                    const parallel::ParameterBuffer& parameters, const ModelConfig& config, std::int64_t chunks);

  std::unique_ptr<OutputHead::Saved> forward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                                             ConstTensorView x, Arena& arena) override;
  void backward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode, const OutputHead::Saved& saved,
                TensorView dx) override;
  LossSums take_loss_sums() override { return {.tokens = tokens_.take_loss_sum()}; }

  /// Logits of x, overwritten: this rank's columns, [rows, vocabulary rows].
  void logits(const LayerShape& shape, ConstTensorView x, TensorView logits) const;
  std::int64_t vocabulary_rows() const { return tokens_.vocabulary_rows(); }

 private:
  struct Saved final : OutputHead::Saved {
    FinalNorm::Saved norm;
    TokenPrediction::Saved tokens;
  };

  parallel::TensorContext context_;
  FinalNorm norm_;
  TokenPrediction tokens_;
};

}  // namespace trireme::model
