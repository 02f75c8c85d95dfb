#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "src/tensor/stream.hpp"
#include "src/tensor/tensor_view.hpp"

namespace trireme {

/// Work that was recorded, to be enqueued again and again as a whole: at a fraction of the host's time.
class Graph {
 public:
  virtual ~Graph() = default;
  /// Enqueues the work. Addresses and numbers are those of the recording. Must live until the work is done.
  virtual void launch(Stream& stream) = 0;
};

/// A backend that can record work is one of these, too.
class GraphRecorder {
 public:
  virtual ~GraphRecorder() = default;
  /// Calls `enqueue` once and records what it puts on the compute stream, and on streams that wait for that one and
  /// that it waits for again; none of it runs. `enqueue` may neither make the host wait nor allocate memory, but
  /// scratch memory that it gives back, nor wait for work that was enqueued before: CudaError.
  virtual std::unique_ptr<Graph> record(const std::function<void()>& enqueue) = 0;
  /// to = from, within the device's memory; sizes and types must agree.
  virtual void copy_within(Stream& stream, ConstTensorView from, TensorView to) = 0;
  /// Kernels, products and graphs enqueued so far; what a graph consists of counts when it is recorded.
  virtual std::size_t launches() const = 0;
};

}  // namespace trireme
