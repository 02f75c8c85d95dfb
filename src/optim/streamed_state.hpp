#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "src/backend/backend.hpp"

namespace trireme::optim {

/// State of an optimizer that stays in host memory between updates. An update streams it through the device piece by
/// piece: while a kernel updates one, the next is copied to the device and the previous one back, each direction on a
/// stream of its own. `slots` pieces are on the device.
class StreamedState {
 public:
  static constexpr int slots = 3;

  /// Pieces have at most `piece_elements` of each of the arrays, whose types are `dtypes`. `backend` must live longer.
  StreamedState(Backend& backend, const std::vector<DType>& dtypes, std::int64_t piece_elements);
  ~StreamedState();
  StreamedState& operator=(StreamedState&&) = delete;

  /// Begins an update on `stream`, after all work enqueued there.
  void begin(Stream& stream);
  /// Copies `piece`, flat parts of equal size of the arrays in host memory, to the device, calls `update` with them
  /// there, which enqueues work on `stream`, and copies them back.
  void update(Stream& stream, const std::vector<TensorView>& piece,
              const std::function<void(const std::vector<TensorView>&)>& update);
  /// Orders later work on `stream` after all copies.
  void end(Stream& stream);

  /// Bytes of the slots.
  std::size_t bytes() const;

 private:
  struct Slot {
    std::vector<Tensor> arrays;
    std::unique_ptr<Event> stored;  // null before the first copy
  };
  Backend& backend_;
  std::vector<Slot> slots_;
  std::size_t next_ = 0;
  std::unique_ptr<Stream> fetching_, storing_;
};

}  // namespace trireme::optim
