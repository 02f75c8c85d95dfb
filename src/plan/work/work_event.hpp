#pragma once

#include "src/backend/kernels/kernel_call.hpp"
#include "src/comm/bus_bandwidth.hpp"
#include "src/parallel/grid/process_grid.hpp"

namespace trireme::plan {

/// Event of a rank: a kernel, the start of a communication, or the wait for one.
struct WorkEvent {
  enum class Kind { kernel, start, wait };
  Kind kind = Kind::kernel;
  KernelCall call{};                                        ///< kernel's call
  int operation = 0;                                        ///< number of the communication, from 0
  parallel::GroupKind group = parallel::GroupKind::tensor;  ///< in which it starts
  Collective collective = Collective::all_reduce;
  double bytes = 0;  ///< as bus_bandwidth.hpp counts them
};

}  // namespace trireme::plan
