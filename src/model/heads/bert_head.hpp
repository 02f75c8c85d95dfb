#pragma once

#include <optional>

#include "src/model/heads/final_norm.hpp"
#include "src/model/heads/output_head.hpp"
#include "src/model/heads/sample_classification.hpp"
#include "src/model/heads/token_prediction.hpp"

namespace trireme::model {

/// Heads of BERT (Devlin et al. 2019, arXiv:1810.04805): the masked tokens, by norm(gelu(x W^T + b)) table^T + c, and
/// with a binary head the order of the two segments, by the first position. A pre-norm model has a final norm before
/// both.
class BertHead final : public OutputHead {
 public:
  /// Takes the parameters mlm.*, the token table, and where the model has them ln_f.*, pooler.* and sop.*. `chunks` are
  /// those of TokenPrediction.
  BertHead(const parallel::TensorContext& context, const parallel::VocabularyPartition& vocabulary,
           const parallel::ParameterBuffer& parameters, const ModelConfig& config, std::int64_t chunks);

  std::unique_ptr<OutputHead::Saved> forward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                                             ConstTensorView x, Arena& arena) override;
  void backward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode, const OutputHead::Saved& saved,
                TensorView dx) override;
  LossSums take_loss_sums() override {
    return {.tokens = tokens_.take_loss_sum(), .samples = order_ ? order_->take_loss_sum() : 0};
  }
  std::vector<double> take_sample_scores() override { return order_ ? order_->take_scores() : std::vector<double>(); }

 private:
  struct Saved final : OutputHead::Saved {
    FinalNorm::Saved hidden;    // its output is the input of both heads
    TensorView pre_activation;  // [s_local, b, h], as are the next two
    TensorView activated;
    TensorView normed;
    NormStatistics statistics;
    TokenPrediction::Saved tokens;
    std::unique_ptr<SamplePrediction::Saved> order;
  };

  parallel::TensorContext context_;
  Activation activation_;
  FinalNorm final_norm_;
  Dense dense_;
  Norm norm_;
  TokenPrediction tokens_;
  std::optional<SampleClassification> order_;
};

}  // namespace trireme::model
