#pragma once

#include <optional>

#include "src/model/layers/transformer_layer.hpp"
#include "src/model/micro_batch.hpp"
#include "src/parallel/tensor/vocabulary.hpp"

namespace trireme::model {

/// Input of the first layer: x = dropout(wte[id] + wpe[position]). Models without learned positions lack `wpe`. A BERT
/// adds emb.type[type] before the dropout where it has token types; a post-norm model normalises the result.
class InputEmbedding {
 public:
  /// State of a post-norm model between forward and backward; empty for others.
  struct Saved {
    TensorView sum;  // [s_local, b, h]
    NormStatistics statistics;
  };

  /// Takes the parameters of the tables, and emb.ln.* of a post-norm model.
  InputEmbedding(const parallel::TensorContext& context, const parallel::VocabularyPartition& vocabulary,
                 const parallel::ParameterBuffer& parameters, const ModelConfig& config);

  /// x [s_local, b, h], overwritten. The result comes from `arena`.
  Saved forward(const LayerShape& shape, const MicroBatch& batch, const DropoutPlan& dropout, TensorView x,
                Arena& arena) const;
  /// Accumulates the parameters' gradients from dx [s_local, b, h].
  void backward(const LayerShape& shape, const MicroBatch& batch, const DropoutPlan& dropout, const Saved& saved,
                ConstTensorView dx) const;

 private:
  /// Types of this rank's rows of the residual stream.
  ConstTensorView local_types(const LayerShape& shape, const MicroBatch& batch) const {
    const std::int64_t n = shape.local_rows();
    return batch.token_types.flat(shape.s_local == shape.s ? 0 : n * context_.tensor_group.rank(), n);
  }

  parallel::TensorContext context_;
  double epsilon_;
  parallel::VocabularyParallelEmbedding tokens_;
  TensorView positions_;  // empty where positions are not learned
  TensorView positions_gradient_;
  TensorView types_;  // empty in models without token types
  TensorView types_gradient_;
  std::optional<NormParameters> norm_;
};

}  // namespace trireme::model
