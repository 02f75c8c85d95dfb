#pragma once

#include <string>
#include <vector>

#include "src/checkpoint/state.hpp"
#include "src/train/parallel_gpt.hpp"

namespace trireme::train {

/// One rank's piece of the tensor `kind`/NAME of a checkpoint, for parameter `i` of `gpt` stored in `stored` (in the
/// parameter's layout): its box without the padding behind it. The data ranks hold the same and share the writing out.
checkpoint::StateTensor state_tensor(ParallelGpt& gpt, std::size_t i, const std::string& kind, TensorView stored);

/// The weights alone, for a model that is not trained: in the accumulation type, as checkpoints hold them.
class ModelState {
 public:
  explicit ModelState(ParallelGpt& gpt);
  /// "model/NAME" of every parameter; valid as long as this object.
  std::vector<checkpoint::StateTensor> tensors();
  /// Rounds what was written through the tensors to the model's own type.
  void write_back();

 private:
  ParallelGpt& gpt_;
  Tensor masters_;
};

}  // namespace trireme::train
