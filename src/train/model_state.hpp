#pragma once

#include <string>
#include <vector>

#include "src/checkpoint/state.hpp"
#include "src/train/parallel_gpt.hpp"

namespace trireme::train {

/// Pieces of every parameter that rank `rank` of a grid keeps, in their order, as a checkpoint stores them. Names are
/// those of the parameters; `data` has the right size but no memory. Pure arithmetic. Throws ConfigError where the
/// model does not divide by the grid.
std::vector<checkpoint::StateTensor> state_pieces(const model::GptConfig& config, const ExecutionConfig& execution,
                                                  const parallel::ProcessGrid& grid, int rank);

/// One rank's piece of the tensor `kind`/NAME of a checkpoint: the range of parameter `i` of `gpt` in this rank's
/// shard, which `stored` holds, without the padding behind the parameter's box. Data ranks that all hold the same share
/// the writing out.
checkpoint::StateTensor state_tensor(ParallelGpt& gpt, std::size_t i, const std::string& kind, TensorView stored);

/// The weights alone, for a model that is not trained: in the accumulation type, as checkpoints hold them.
class ModelState {
 public:
  explicit ModelState(ParallelGpt& gpt);
  /// "model/NAME" of every parameter, in the backend's memory; valid as long as this object.
  std::vector<checkpoint::StateTensor> tensors();
  /// Rounds what was written through the tensors to the model's own type.
  void write_back();

 private:
  ParallelGpt& gpt_;
  Tensor masters_;
};

}  // namespace trireme::train
