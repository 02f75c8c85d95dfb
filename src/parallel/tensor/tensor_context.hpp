#pragma once

#include "src/backend/backend.hpp"
#include "src/comm/communicator.hpp"

namespace trireme::parallel {

/// What every layer of one rank works with. Refers to things that outlive the layers.
struct TensorContext {
  Backend& backend;
  Communicator& tensor_group;
  Arena& workspace;  ///< for what a layer needs only while it runs

  Stream& stream() const { return backend.compute_stream(); }
  /// data = sum over the tensor group; the compute stream waits for it.
  void all_reduce(TensorView data) const {
    if (tensor_group.size() > 1) tensor_group.all_reduce(stream(), data, ReduceOp::sum).wait(stream());
  }
};

}  // namespace trireme::parallel
