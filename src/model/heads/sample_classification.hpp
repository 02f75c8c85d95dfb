#pragma once

#include <optional>

#include "src/model/blocks/dense.hpp"
#include "src/model/heads/sample_prediction.hpp"

namespace trireme::model {

/// Summary of a sample by which it is classified: its pooled first position, tanh(x[0] pooler^T + b) (Devlin et al.
/// 2019), or its last token (Radford et al. 2018).
enum class SampleSummary { pooled_first, last };

/// Classification of entire samples: logits = summary classifier^T + c, and their cross entropy. With c choices the
/// classifier has one output, and the logits of c samples that follow one another are those of one choice. The
/// parameters are complete on every rank; only ranks that hold the first position compute. Those that hold a last token
/// send it to them.
class SampleClassification final : public SamplePrediction {
 public:
  /// Empty on ranks without the first position.
  struct Saved final : SamplePrediction::Saved {
    ConstTensorView row;        // [b, h]: the first position's rows, or those of the last tokens
    TensorView pre_activation;  // [b, h]
    TensorView pooled;          // [b, h]
    TensorView logits;          // [b / choices, classes]
    TensorView maximum;         // [b / choices] A
    TensorView sum_exponentials;
  };

  /// Takes the parameters `classifier`.*, whose rows are the classes, and of a pooled summary pooler.*.
  SampleClassification(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                       const std::string& classifier, SampleSummary summary = SampleSummary::pooled_first,
                       std::int64_t choices = 1);

  std::unique_ptr<SamplePrediction::Saved> forward(const LayerShape& shape, const MicroBatch& batch,
                                                   const StageMode& mode, ConstTensorView x, Arena& arena) override;
  void backward(const LayerShape& shape, const MicroBatch& batch, double loss_gradient,
                const SamplePrediction::Saved& saved, TensorView dx) const override;

 private:
  /// Gradient of the summarised rows, overwritten, where the first position is held.
  void backward_row(const LayerShape& shape, const MicroBatch& batch, double loss_gradient, const Saved& saved,
                    TensorView drow) const;
  VocabularyShard classes() const { return {0, choices_ > 1 ? choices_ : classifier_.outputs()}; }
  bool reads_last() const { return !pooler_; }

  std::optional<Dense> pooler_;
  Dense classifier_;
  std::int64_t choices_;
};

}  // namespace trireme::model
