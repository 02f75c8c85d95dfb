#pragma once

#include <optional>

#include "src/model/heads/loss_sum.hpp"
#include "src/model/heads/output_head.hpp"
#include "src/model/layers/dense.hpp"

namespace trireme::model {

/// Summary of a sample by which it is classified: its pooled first position, tanh(x[0] pooler^T + b) (Devlin et al.
/// 2019), or its last token (Radford et al. 2018).
enum class SampleSummary { pooled_first, last };

/// Classification of whole samples: logits = summary classifier^T + c, and their cross entropy. With c choices the
/// classifier has one output, and the logits of c samples that follow one another are those of one choice. Sums the
/// weighted losses of all micro-batches. The parameters are whole on every rank; only ranks that hold the first
/// position compute. Those that hold a last token send it to them.
class SampleClassification {
 public:
  /// State between forward and backward; empty on ranks without the first position.
  struct Saved {
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

  /// Adds the losses of x [s_local, b, h] to the sum, with the micro-batch's sample labels and weights. Without a
  /// backward it keeps the scores. x must live as long as the result, which comes from `arena`.
  Saved forward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode, ConstTensorView x,
                Arena& arena);
  /// Adds the losses' gradient to the summarised rows of dx [s_local, b, h]; accumulates the parameters' gradients.
  void backward(const LayerShape& shape, const MicroBatch& batch, double loss_gradient, const Saved& saved,
                TensorView dx) const;
  /// Returns the sum of losses since the last call, 0 on ranks without the first position. Waits for the device.
  double take_loss_sum() { return loss_sum_.take(); }
  /// OutputHead::take_sample_scores.
  std::vector<double> take_scores();

 private:
  bool holds_first_position(const LayerShape& shape) const {
    return shape.residual_positions(context_.tensor_group.rank())[0] == 0;
  }
  /// Gradient of the summarised rows, overwritten, where the first position is held.
  void backward_row(const LayerShape& shape, const MicroBatch& batch, double loss_gradient, const Saved& saved,
                    TensorView drow) const;
  VocabularyShard classes() const { return {0, choices_ > 1 ? choices_ : classifier_.outputs()}; }
  bool reads_last() const { return !pooler_; }

  parallel::TensorContext context_;
  std::optional<Dense> pooler_;
  Dense classifier_;
  std::int64_t choices_;
  LossSum loss_sum_;
  std::vector<Tensor> scores_;  // [b, classes] fp64 of each micro-batch evaluated
};

}  // namespace trireme::model
