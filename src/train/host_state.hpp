#pragma once

#include <vector>

#include "src/backend/host_copies.hpp"
#include "src/checkpoint/state.hpp"

namespace trireme::train {

/// One rank's tensors of a checkpoint where files are read and written: in host memory. On the CPU that is where they
/// are; for a GPU it is pinned memory for all of them.
class HostState {
 public:
  /// `tensors` have their data in memory of `backend`; both must live longer. For a state that is written while
  /// training goes on it takes memory of its own (HostCopies::Allocation::always).
  HostState(Backend& backend, std::vector<checkpoint::StateTensor> tensors,
            HostCopies::Allocation allocation = HostCopies::Allocation::where_needed);

  /// The same tensors with data in host memory.
  const std::vector<checkpoint::StateTensor>& tensors() const { return tensors_; }
  /// Takes what the device has at this point of its compute stream. Waits for it.
  void fetch();
  /// Begins to take it, beside the work that is enqueued next; only with memory of its own. Who changes the tensors
  /// before `fetched` calls `keep_order` first.
  void begin_fetch();
  /// Orders later work on the compute stream after the copies begun so far.
  void keep_order() { copies_.order_before(backend_.compute_stream()); }
  /// Returns whether the copies begun are complete; `wait` blocks the host until they are.
  bool fetched() const { return copies_.done(); }
  void wait() { copies_.wait(); }
  /// Brings to the device what was loaded. Waits until it is there.
  void store();

 private:
  Backend& backend_;
  std::vector<checkpoint::StateTensor> tensors_;
  HostCopies copies_;
  std::unique_ptr<Stream> copying_;  // copies beside the compute stream
};

}  // namespace trireme::train
