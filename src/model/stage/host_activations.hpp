#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "src/backend/backend.hpp"

namespace trireme::model {

/// Copies the activations of layers to host memory after their forward, and back before their backward, on a stream
/// beside the compute stream. Device memory holds those of `slots` layers at a time, in as many slots. A layer uses the
/// same slot in both passes, so its tensors keep their addresses. Events order copies and computation; the host never
/// waits.
class HostActivations {
 public:
  /// While a layer runs, a forward writes the next one's input and copies the previous one; a backward fetches two.
  static constexpr int slots = 3;

  /// Activations of one layer and micro-batch.
  struct Layer {
    int slot = 0;
    std::uint64_t content = 0;                              // identifies them
    std::vector<std::pair<TensorView, TensorView>> copies;  // ranges of the slot's memory, and their host memory
  };

  /// `backend` must live longer.
  explicit HostActivations(Backend& backend);
  ~HostActivations();
  HostActivations& operator=(HostActivations&&) = delete;

  /// Returns memory for another layer's tensors, that of an emptied slot, and until `store` the same. Work enqueued
  /// from now on writes them.
  Arena& open(int slot);
  /// Begins to copy the layer to memory of `host`.
  Layer store(int slot, Arena& host);
  /// Begins to copy it to the same memory again: backward has changed its tensors.
  void store(const Layer& layer);
  /// Ends layers that were opened and not stored.
  void close_all();
  /// Begins to copy a layer back, unless its slot still has it, after the work enqueued so far: nothing enqueued later
  /// may use the slot before `finish_fetch`.
  void begin_fetch(const Layer& layer);
  /// Orders later work on the compute stream after that copy.
  void finish_fetch(const Layer& layer);

  /// Bytes of the slots: of live tensors, and taken from the allocator.
  std::size_t used_bytes() const;
  std::size_t reserved_bytes() const;

 private:
  struct Slot {
    Arena arena;
    std::uint64_t content = 0;
    bool open = false;
    std::unique_ptr<Event> stored = {}, fetched = {};  // null if nothing waits for the copy
  };
  Slot& slot(const Layer& layer) { return slots_[static_cast<std::size_t>(layer.slot)]; }
  Stream& copying();

  Backend& backend_;
  std::vector<Slot> slots_;
  std::uint64_t contents_ = 0;
  std::unique_ptr<Stream> copying_;  // null before the first copy
};

}  // namespace trireme::model
