#pragma once

#include "src/model/layers/dropout_plan.hpp"
#include "src/model/layers/layer_shape.hpp"
#include "src/model/stage/micro_batch.hpp"
#include "src/parallel/data/parameter_buffer.hpp"
#include "src/parallel/tensor/vocabulary.hpp"

namespace trireme::model {

/// Input of the first layer: x = dropout(wte[id] + wpe[position]). Models without learned positions lack `wpe`.
/// Backward needs nothing of forward.
class InputEmbedding {
 public:
  /// Takes the parameters `wte` and `wpe`.
  InputEmbedding(const parallel::TensorContext& context, const parallel::VocabularyPartition& vocabulary,
                 const parallel::ParameterBuffer& parameters);

  /// x [s_local, b, h], overwritten.
  void forward(const LayerShape& shape, const MicroBatch& batch, const DropoutPlan& dropout, TensorView x) const;
  /// Accumulates the tables' gradients from dx [s_local, b, h].
  void backward(const LayerShape& shape, const MicroBatch& batch, const DropoutPlan& dropout, ConstTensorView dx) const;

 private:
  parallel::TensorContext context_;
  parallel::VocabularyParallelEmbedding tokens_;
  TensorView positions_;  // empty where positions are not learned
  TensorView positions_gradient_;
};

}  // namespace trireme::model
