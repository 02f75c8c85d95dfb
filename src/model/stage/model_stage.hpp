#pragma once

#include <vector>

#include "src/model/micro_batch.hpp"
#include "src/model/stage/activation_store.hpp"
#include "src/parallel/pipeline/stage.hpp"

namespace trireme::model {

/// Stage of a model that reads micro-batches of tokens.
class ModelStage : public parallel::Stage {
 public:
  /// Sets the micro-batches and the mode of the executor's next run. The tensors must stay valid until its end.
  virtual void begin(std::vector<MicroBatch> micro_batches, const StageMode& mode) = 0;
  /// Memory of the stage's activations. A forward opens the next arena; the end of the backward closes it, or the end
  /// of the forward if no backward follows.
  virtual ActivationStore& activations() = 0;
};

}  // namespace trireme::model
