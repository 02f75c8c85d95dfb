#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/model/blocks/layer_shape.hpp"
#include "src/model/heads/loss_sum.hpp"
#include "src/model/micro_batch.hpp"
#include "src/parallel/data/parameter_buffer.hpp"
#include "src/parallel/tensor/tensor_context.hpp"

namespace trireme::model {

/// Linear layer replicated on every rank of the tensor group: y = activation(x W^T + b). Each rank computes its own
/// rows of the residual stream.
class Dense {
 public:
  /// Takes the parameters `prefix`.weight [out, in] and `prefix`.bias [out].
  Dense(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters, const std::string& prefix)
      : context_(context),
        weight_(parameters.at(prefix + ".weight").value),
        bias_(parameters.at(prefix + ".bias").value),
        weight_gradient_(parameters.at(prefix + ".weight").gradient),
        bias_gradient_(parameters.at(prefix + ".bias").gradient) {}

  std::int64_t outputs() const { return weight_.shape()[0]; }

  /// x [n, in]; overwrites y and, if there is an activation, pre_activation, both [n, out].
  void forward(ConstTensorView x, Activation activation, TensorView pre_activation, TensorView y) const {
    const RepeatedProducts repeated(context_.backend.gemm(), context_.tensor_group.size() > 1);
    context_.backend.gemm().linear(context_.stream(), x, weight_, bias_, activation, pre_activation, y);
  }
  /// Accumulates the gradients of W and b, unless they are frozen, from dy [n, out], the gradient before the
  /// activation. dx = dy W, overwritten, times activation'(pre_activation) if x = activation(pre_activation) comes from
  /// the layer below.
  void backward(ConstTensorView dy, ConstTensorView x, Activation activation, ConstTensorView pre_activation,
                TensorView dx) const {
    GemmKernels& gemm = context_.backend.gemm();
    const RepeatedProducts repeated(gemm, context_.tensor_group.size() > 1);
    if (weight_gradient_) gemm.linear_backward_weight(context_.stream(), dy, x, weight_gradient_, bias_gradient_);
    gemm.linear_backward_input(context_.stream(), dy, weight_, activation, pre_activation, dx);
  }

 private:
  parallel::TensorContext context_;
  TensorView weight_, bias_, weight_gradient_, bias_gradient_;
};

/// Part of a head: a prediction for each sample. Sums the weighted losses of all micro-batches.
class SamplePrediction {
 public:
  /// State between forward and backward.
  struct Saved {
    virtual ~Saved() = default;
  };

  virtual ~SamplePrediction() = default;
  /// Adds the losses of x [s_local, b, h] to the sum, with the micro-batch's sample labels and weights. Keeps the
  /// scores if no backward follows. x must outlive the result, whose tensors come from `arena`. Collective over the
  /// ranks that share the sequence.
  virtual std::unique_ptr<Saved> forward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                                         ConstTensorView x, Arena& arena) = 0;
  /// Adds the losses' gradient to dx [s_local, b, h]; accumulates the parameters' gradients. Overwrites the logits.
  /// Collective like `forward`.
  virtual void backward(const LayerShape& shape, const MicroBatch& batch, double loss_gradient, const Saved& saved,
                        TensorView dx) const = 0;
  /// sum [1] fp64 = the sum of losses since the last call, 0 on ranks without the first position. Stream-ordered.
  void take_loss_sum(TensorView sum) { loss_sum_.take(sum); }
  /// OutputHead::take_sample_scores.
  std::vector<double> take_scores();

 protected:
  explicit SamplePrediction(const parallel::TensorContext& context) : context_(context), loss_sum_(context.backend) {}

  /// Returns whether this rank holds the first position, and thus counts the losses and keeps the scores.
  bool holds_first_position(const LayerShape& shape) const {
    return shape.residual_positions(shape.chunk(0), context_.tensor_group.rank())[0] == 0;
  }
  /// Returns memory for the scores of an evaluated micro-batch: fp64, sample by sample.
  TensorView make_scores(const Shape& shape) { return scores_.emplace_back(context_.backend, DType::fp64, shape); }

  parallel::TensorContext context_;
  LossSum loss_sum_;

 private:
  std::vector<Tensor> scores_;  // one tensor for each evaluated micro-batch
};

/// Summary by which a sample is classified: its pooled first position, tanh(x[0] pooler^T + b) (Devlin et al. 2019), or
/// its last token (Radford et al. 2018).
enum class SampleSummary { pooled_first, last };

/// Classification of entire samples: logits = summary classifier^T + c, and their cross entropy. A single class is a
/// regression: the logit is the predicted value, and the loss its squared error. With several choices the classifier
/// has one output, and the logits of that many consecutive samples form one distribution. The parameters are replicated
/// on every rank. Only ranks with the first position compute; the ranks that hold a last token send it
/// to them.
class SampleClassification final : public SamplePrediction {
 public:
  /// Empty on ranks without the first position.
  struct Saved final : SamplePrediction::Saved {
    ConstTensorView row;        // [b, h]: rows of the first position, or of the last tokens
    TensorView pre_activation;  // [b, h]
    TensorView pooled;          // [b, h]
    TensorView logits;          // [b / choices, classes]
    TensorView maximum;         // [b / choices] A; empty for a regression
    TensorView sum_exponentials;
    TensorView differences;  // [b] A: SquaredError::differences; empty for classes
  };

  /// Takes the parameters `classifier`.*, one row for each class, and for a pooled summary pooler.*.
  SampleClassification(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                       const std::string& classifier, SampleSummary summary = SampleSummary::pooled_first,
                       std::int64_t choices = 1);

  std::unique_ptr<SamplePrediction::Saved> forward(const LayerShape& shape, const MicroBatch& batch,
                                                   const StageMode& mode, ConstTensorView x, Arena& arena) override;
  void backward(const LayerShape& shape, const MicroBatch& batch, double loss_gradient,
                const SamplePrediction::Saved& saved, TensorView dx) const override;

 private:
  /// Computes the gradient of the summarised rows, overwritten, on ranks with the first position.
  void backward_row(const LayerShape& shape, const MicroBatch& batch, double loss_gradient, const Saved& saved,
                    TensorView drow) const;
  bool is_regression() const { return choices_ == 1 && classifier_.outputs() == 1; }
  /// Returns the weighted losses of the saved logits, in the work space. Allocates what backward needs in `arena`.
  ConstTensorView losses_of(const MicroBatch& batch, Saved& saved, Arena& arena) const;
  VocabularyShard classes() const { return {0, choices_ > 1 ? choices_ : classifier_.outputs()}; }

  std::optional<Dense> pooler_;  // without it, the summary is the last token
  Dense classifier_;
  std::int64_t choices_;
};

/// Prediction of the first and the last position of an answer: two logits for each position, x W^T + b, and for each of
/// the two a softmax over the sample's positions before its padding. The loss of a sample is the mean of both cross
/// entropies (Devlin et al. 2019). Every rank that shares the sequence gathers all logits.
class SpanPrediction final : public SamplePrediction {
 public:
  struct Saved final : SamplePrediction::Saved {
    ConstTensorView input;  // [s_local, b, h]
    TensorView logits;      // [2, b, s] for the full sequence: first positions, then last ones
    TensorView statistics;  // [4, b] A: maximum and sum of exponentials for each of the two
  };

  /// Takes the parameters spans.*. Samples have at most `sequence` positions on all context ranks together,
  /// micro-batches `b` samples.
  SpanPrediction(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                 std::int64_t sequence, std::int64_t b);

  /// Scores are the logits of all first positions, then those of all last positions.
  std::unique_ptr<SamplePrediction::Saved> forward(const LayerShape& shape, const MicroBatch& batch,
                                                   const StageMode& mode, ConstTensorView x, Arena& arena) override;
  void backward(const LayerShape& shape, const MicroBatch& batch, double loss_gradient,
                const SamplePrediction::Saved& saved, TensorView dx) const override;

 private:
  /// Constants for sequences of s positions.
  struct Constants {
    Tensor ids;   // [2 b s]: for each element of [2, b, s], its index in [s, b, 2]
    Tensor mask;  // [s + 1, s] T: in row n, 0 for the first n positions, masked_logit for the rest
  };
  /// Returns the constants for a sequence, which are created at its first use.
  const Constants& constants_for(std::int64_t sequence);
  std::int64_t sequence_of(const LayerShape& shape) const {
    return shape.s * (context_.context_group == nullptr ? 1 : context_.context_group->size());
  }

  std::int64_t b_;
  DType dtype_;
  Dense spans_;
  std::map<std::int64_t, Constants> constants_;  // by sequence length
};

}  // namespace trireme::model
