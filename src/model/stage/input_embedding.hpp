#pragma once

#include <optional>

#include "src/model/blocks/layer_shape.hpp"
#include "src/model/blocks/norm.hpp"
#include "src/model/micro_batch.hpp"
#include "src/parallel/tensor/vocabulary.hpp"

namespace trireme::model {

/// Input of the first layer: x = dropout(c wte[id] + wpe[position]). c is 1, or if embeddings are scaled sqrt(h)
/// rounded to the training type. Models without learned positions lack `wpe`. The position is the batch's, if given,
/// otherwise that in the sequence. A BERT with token types adds emb.type[type] before dropout; a post-norm model
/// normalises the result. With ModelConfig::embedding_norm c wte[id] is normalised.
class InputEmbedding {
 public:
  /// State of a model with a norm between forward and backward; empty otherwise.
  struct Saved {
    TensorView sum;  // [s_local, b, h], the input of the norm
    NormStatistics statistics;
  };

  /// Takes the parameters of the tables, and emb.ln.* of a model with a norm here. `layer` selects the dropout masks.
  InputEmbedding(const parallel::TensorContext& context, const parallel::VocabularyPartition& vocabulary,
                 const parallel::ParameterBuffer& parameters, const ModelConfig& config, int layer = 0);

  /// Overwrites x [s_local, b, h]. The result's tensors come from `arena`.
  Saved forward(const LayerShape& shape, const MicroBatch& batch, const DropoutPlan& dropout, TensorView x,
                Arena& arena) const;
  /// Returns whether the parameters have gradients.
  bool trains() const { return tokens_.trains(); }
  /// Accumulates the parameters' gradients from dx [s_local, b, h].
  void backward(const LayerShape& shape, const MicroBatch& batch, const DropoutPlan& dropout, const Saved& saved,
                ConstTensorView dx) const;

 private:
  /// Table whose rows are added, and its gradient; empty in models without it.
  struct Table {
    TensorView values, gradient;
  };
  /// Calls `visit(table, ids)` for each table whose rows the batch selects, with the ids of a run of this rank's rows
  /// of the residual stream.
  template <class Visit>
  void for_selected(const LayerShape& shape, const MicroBatch& batch, parallel::RowChunk run, Visit&& visit) const {
    const std::int64_t first = shape.first_of(run, context_.tensor_group.rank()) * shape.b;
    const std::int64_t count = shape.local_rows() / run.count;
    if (types_.values) visit(types_, batch.token_types.flat(first, count));
    if (positions_.values && batch.positions) visit(positions_, batch.positions.flat(first, count));
  }
  /// The dropout of a run of these rows.
  Dropout dropout_of(const LayerShape& shape, const DropoutPlan& dropout, parallel::RowChunk run) const {
    Dropout result = dropout.at(layer_, DropoutSite::embedding);
    result.positions = shape.residual_positions(run, context_.tensor_group.rank());
    return result;
  }
  /// Table whose rows the positions in the sequence select; empty if the batch has positions.
  Table by_sequence(const MicroBatch& batch) const { return batch.positions ? Table() : positions_; }

  parallel::TensorContext context_;
  int layer_;
  double factor_;           // multiplies token embeddings
  bool normalises_tokens_;  // the norm is before positions and dropout, not after them
  parallel::VocabularyParallelEmbedding tokens_;
  Table positions_;
  Table types_;
  std::optional<Norm> norm_;
};

}  // namespace trireme::model
