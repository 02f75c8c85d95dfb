#pragma once

#include <memory>
#include <vector>

#include "src/model/blocks/layer_shape.hpp"
#include "src/model/micro_batch.hpp"

namespace trireme::model {

/// Sums of weighted losses over the micro-batches of some time.
struct LossSums {
  double tokens = 0;   ///< losses of tokens
  double samples = 0;  ///< losses of samples
};

/// Head of a model, on the last stage: computes losses from the result of the last layer, and sums them over
/// micro-batches.
class OutputHead {
 public:
  /// State that one micro-batch keeps between forward and backward. Heads derive from it.
  struct Saved {
    virtual ~Saved() = default;
    Arena::Mark mark;  ///< all that was allocated before
  };

  virtual ~OutputHead() = default;
  /// Adds the micro-batch's losses to the sums, unless the head leaves that to backward. x [s_local, b, h] must live as
  /// long as the result, whose tensors come from `arena`.
  virtual std::unique_ptr<Saved> forward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                                         ConstTensorView x, Arena& arena) = 0;
  /// dx [s_local, b, h] from the losses, overwritten; accumulates the parameters' gradients. The gradients of the sums
  /// of losses are the mode's, for a micro-batch without some of its own.
  virtual void backward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode, const Saved& saved,
                        TensorView dx) = 0;
  /// Returns the sums since the last call. Waits for the device.
  virtual LossSums take_loss_sums() = 0;
  /// Returns the class scores of the samples evaluated since the last call: [samples, classes], row-major, in the order
  /// of the micro-batches. Empty for heads that do not classify samples, and on ranks without the first position.
  /// Waits for the device.
  virtual std::vector<double> take_sample_scores() { return {}; }
};

}  // namespace trireme::model
