#pragma once

#include <optional>

#include "src/model/heads/sample_classification.hpp"
#include "src/model/heads/span_prediction.hpp"
#include "src/model/layers/transformer_layer.hpp"

namespace trireme::model {

/// Head of a task in the place of pretraining's: classes, choices or spans (ModelOutput). A pre-norm model has its
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
                TensorView dx) const override;
  LossSums take_loss_sums() override {
    return {.samples = samples_ ? samples_->take_loss_sum() : spans_->take_loss_sum()};
  }
  std::vector<double> take_sample_scores() override {
    return samples_ ? samples_->take_scores() : spans_->take_scores();
  }

 private:
  struct Saved final : OutputHead::Saved {
    ConstTensorView input;    // result of the last layer
    TensorView final_normed;  // pre-norm models: normed input, and its statistics
    NormStatistics final_statistics;
    SampleClassification::Saved samples;
    SpanPrediction::Saved spans;
  };

  parallel::TensorContext context_;
  double epsilon_;
  std::optional<NormParameters> final_norm_;
  std::optional<SampleClassification> samples_;  // one of the two
  std::optional<SpanPrediction> spans_;
};

}  // namespace trireme::model
