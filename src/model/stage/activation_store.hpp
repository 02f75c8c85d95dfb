#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "src/model/stage/host_activations.hpp"

namespace trireme::model {

/// Memory for the activations of all micro-batches in flight: one arena for each micro-batch of each chunk, and one in
/// host memory. A closed arena keeps its memory for a later micro-batch.
class ActivationStore {
 public:
  /// Takes device memory from `allocator`, which grows so, and host memory from `backend`; both must live longer.
  ActivationStore(Allocator& allocator, Growth growth, Backend& backend)
      : allocator_(allocator), growth_(growth), backend_(backend), host_(backend) {}

  /// Opens the lowest-numbered free arena for a micro-batch. The numbers depend only on the schedule.
  Arena& open(int chunk, int micro_batch);
  /// Number of the arena that the next `open` uses.
  std::size_t next_number() const { return free_.empty() ? arenas_.size() : *free_.begin(); }
  std::size_t number(int chunk, int micro_batch) const { return open_.at({chunk, micro_batch}); }
  Arena& arena(int chunk, int micro_batch) { return arenas_[number(chunk, micro_batch)]->device; }
  /// Arena in host memory, for HostActivations::store.
  Arena& host_arena(int chunk, int micro_batch) { return arenas_[number(chunk, micro_batch)]->host; }
  /// Layers whose activations are in host memory.
  HostActivations& host() { return host_; }
  /// Frees a micro-batch's arena and invalidates all views of it.
  void close(int chunk, int micro_batch);
  /// Closes every arena, including those of micro-batches whose backward did not run.
  void close_all();

  /// Bytes of live activations on the device.
  std::size_t used_bytes() const;
  /// Bytes taken from the device, and from host memory.
  std::size_t reserved_bytes() const;
  std::size_t host_bytes() const;
  /// Maximum of `used_bytes` over all calls of `note_peak`.
  std::size_t peak_bytes() const { return peak_bytes_; }
  void note_peak();

 private:
  struct Arenas {
    Arena device, host;
  };
  Allocator& allocator_;
  Growth growth_;
  Backend& backend_;
  std::vector<std::unique_ptr<Arenas>> arenas_;
  HostActivations host_;                             // after `arenas_`: its copies end before they are freed
  std::set<std::size_t> free_;                       // numbers of the closed arenas
  std::map<std::pair<int, int>, std::size_t> open_;  // numbers, by chunk and micro-batch
  std::size_t peak_bytes_ = 0;
};

}  // namespace trireme::model
