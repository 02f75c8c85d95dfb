#pragma once

#include <map>

#include "src/model/blocks/dense.hpp"
#include "src/model/heads/sample_prediction.hpp"

namespace trireme::model {

/// Prediction of the first and the last position of an answer: two logits a position, x W^T + b, and for each of the
/// two a softmax over the positions of the sample before its padding. The loss of a sample is the mean of both cross
/// entropies (Devlin et al. 2019). Every rank of a divided sequence gathers all logits.
class SpanPrediction final : public SamplePrediction {
 public:
  struct Saved final : SamplePrediction::Saved {
    ConstTensorView input;  // [s_local, b, h]
    TensorView logits;      // [2, b, s]: of all positions of the sequence, first positions before last ones
    TensorView statistics;  // [4, b] A: maximum and sum of exponentials for each of the two
  };

  /// Takes the parameters spans.*. Samples have at most `sequence` positions on all context ranks together,
  /// micro-batches `b` samples.
  SpanPrediction(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                 std::int64_t sequence, std::int64_t b);

  /// Its scores are the logits of all first positions, then those of the last ones.
  std::unique_ptr<SamplePrediction::Saved> forward(const LayerShape& shape, const MicroBatch& batch,
                                                   const StageMode& mode, ConstTensorView x, Arena& arena) override;
  void backward(const LayerShape& shape, const MicroBatch& batch, double loss_gradient,
                const SamplePrediction::Saved& saved, TensorView dx) const override;

 private:
  /// Constants of micro-batches of s positions.
  struct Constants {
    Tensor ids;   // [2 b s]: element of [s, b, 2] that each of [2, b, s] is
    Tensor mask;  // [s + 1, s] T: in row n, 0 for the first n positions, masked_logit for the rest
  };
  /// Those of a sequence, made at its first use.
  const Constants& make_constants(std::int64_t sequence);
  std::int64_t sequence_of(const LayerShape& shape) const {
    return shape.s * (context_.context_group == nullptr ? 1 : context_.context_group->size());
  }

  std::int64_t b_;
  DType dtype_;
  Dense spans_;
  std::map<std::int64_t, Constants> constants_;  // by sequence
};

}  // namespace trireme::model
