#pragma once

#include <vector>

#include "src/model/micro_batch.hpp"
#include "src/model/stage/activation_store.hpp"
#include "src/parallel/pipeline/stage.hpp"

namespace trireme::model {

/// Stage of a model that reads micro-batches of tokens.
class ModelStage : public parallel::Stage {
 public:
  /// Sets the micro-batches and the mode of the executor's next run. The tensors must live until it is done.
  virtual void begin(std::vector<MicroBatch> micro_batches, const StageMode& mode) = 0;
  /// Memory of the stage's activations. A forward opens the next arena; the end of the backward closes it, or where no
  /// backward follows the end of the forward.
  virtual ActivationStore& activations() = 0;
};

}  // namespace trireme::model
