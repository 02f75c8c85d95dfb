#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/backend/host_copies.hpp"
#include "src/checkpoint/state.hpp"
#include "src/train/parallel_model.hpp"

namespace trireme::train {

/// Pieces of every parameter that rank `rank` of a grid keeps, in their order, as a checkpoint sees them. Names are
/// those of the parameters; `data` has the right size but no memory. Pure arithmetic. Throws ConfigError if the
/// model does not divide by the grid.
std::vector<checkpoint::StateTensor> state_pieces(const model::ModelConfig& config, const ExecutionConfig& execution,
                                                  const parallel::ProcessGrid& grid, int rank);

/// One rank's piece of the tensor `kind`/NAME of a checkpoint: the part of parameter `i` of `model` in this rank's
/// shard, which `stored` holds, without the padding behind the parameter's box. Ranks that hold the same tensors
/// divide the writing among themselves.
checkpoint::StateTensor state_tensor(ParallelModel& model, std::size_t i, const std::string& kind, TensorView stored);

/// The weights alone, for a model that is not trained: in the accumulation type, as checkpoints hold them.
class ModelState {
 public:
  explicit ModelState(ParallelModel& model);
  /// "model/NAME" of every parameter, in the backend's memory; valid as long as this object.
  std::vector<checkpoint::StateTensor> tensors();
  /// Rounds what was written through the tensors to the model's own type. Collective.
  void write_back();

 private:
  TensorView master(std::size_t i) const;

  ParallelModel& model_;
  Tensor masters_;
};

/// One rank's tensors of a checkpoint in host memory, where files are read and written. Of tensors in host memory these
/// are themselves; for others, copies in pinned memory.
class HostState {
 public:
  /// `tensors` have their data in memory of `backend` or its host memory; both must live longer. For a state that is
  /// written while training continues it takes memory of its own (HostCopies::Allocation::always).
  HostState(Backend& backend, std::vector<checkpoint::StateTensor> tensors,
            HostCopies::Allocation allocation = HostCopies::Allocation::where_needed);

  /// The same tensors with data in host memory.
  const std::vector<checkpoint::StateTensor>& tensors() const { return tensors_; }
  /// Copies the tensors at this point of the compute stream, and waits.
  void fetch();
  /// Begins the copy, concurrent with the work enqueued next; only with memory of its own. Until `fetched`, call
  /// `keep_order` before you change the tensors.
  void begin_fetch();
  /// Orders later work on the compute stream after the copies begun so far.
  void keep_order() { copies_.order_before(backend_.compute_stream()); }
  /// Returns whether the copies begun are complete; `wait` blocks the host until they are.
  bool fetched() const { return copies_.done(); }
  void wait() { copies_.wait(); }
  /// Copies loaded tensors to the device, and waits.
  void store();

 private:
  Backend& backend_;
  std::vector<checkpoint::StateTensor> tensors_;
  HostCopies copies_;
  std::unique_ptr<Stream> copying_;  // copies concurrently with the compute stream
};

}  // namespace trireme::train
