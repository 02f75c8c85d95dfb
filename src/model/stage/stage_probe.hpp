#pragma once

#include "src/tensor/tensor_view.hpp"

namespace trireme::model {

/// Observer of the residual stream in a stage's training runs. Tensors are [s_local, b, h]. Work that it enqueues may
/// be recorded in the stage's graphs and replayed without a call.
class StageProbe {
 public:
  virtual ~StageProbe() = default;
  /// Receives the result of a layer, by its number in the model; of the embeddings with `layer` -1.
  virtual void after_layer(int layer, ConstTensorView y) = 0;
  /// Receives the result of a chunk's last layer.
  virtual void after_forward(int chunk, ConstTensorView y) = 0;
  /// Receives the gradient of the input of a chunk's first layer.
  virtual void after_backward(int chunk, ConstTensorView dx) = 0;
};

}  // namespace trireme::model
