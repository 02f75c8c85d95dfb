#pragma once

#include "src/model/heads/final_norm.hpp"
#include "src/model/heads/output_head.hpp"
#include "src/model/heads/sample_prediction.hpp"

namespace trireme::model {

/// Head of a task instead of pretraining's: classes, choices or spans (ModelOutput). A pre-norm model has its
/// final norm before it.
class TaskHead final : public OutputHead {
 public:
  /// Takes the parameters of the head and where the model has it ln_f.*. Samples have `sequence` positions,
  /// micro-batches `b` samples.
  TaskHead(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
           const ModelConfig& config, std::int64_t sequence, std::int64_t b);

  std::unique_ptr<OutputHead::Saved> forward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                                             ConstTensorView x, Arena& arena) override;
  void backward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode, const OutputHead::Saved& saved,
                TensorView dx) override;
  LossSums take_loss_sums() override { return {.samples = prediction_->take_loss_sum()}; }
  std::vector<double> take_sample_scores() override { return prediction_->take_scores(); }

 private:
  struct Saved final : OutputHead::Saved {
    FinalNorm::Saved norm;
    std::unique_ptr<SamplePrediction::Saved> prediction;
  };

  parallel::TensorContext context_;
  FinalNorm norm_;
  std::unique_ptr<SamplePrediction> prediction_;
};

}  // namespace trireme::model
