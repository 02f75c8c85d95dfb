#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "src/tensor/stream.hpp"
#include "src/tensor/tensor_view.hpp"

namespace trireme {

/// Recorded work, enqueued again at once in a fraction of the host's time.
class Graph {
 public:
  virtual ~Graph() = default;
  /// Enqueues the work. Addresses and numbers are those of the recording. Must live until the work is done.
  virtual void launch(Stream& stream) = 0;
};

/// Interface of a backend that can record work.
class GraphRecorder {
 public:
  virtual ~GraphRecorder() = default;
  /// Calls `enqueue` once and records its work on the compute stream, and on streams that wait for that one and that it
  /// waits for again. None of the work runs. Throws CudaError if `enqueue` makes the host wait, waits for earlier work,
  /// or allocates memory other than scratch memory that it frees.
  virtual std::unique_ptr<Graph> record(const std::function<void()>& enqueue) = 0;
  /// Kernels, products and graphs enqueued so far; the parts of a graph count when it is recorded.
  virtual std::size_t launches() const = 0;
};

}  // namespace trireme
