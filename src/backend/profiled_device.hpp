#pragma once

#include "src/tensor/trace_recorder.hpp"

namespace trireme {

/// Interface of a backend whose device a profiler records (Nsight Systems). It names parts of the work as a
/// RangeMarker.
class ProfiledDevice : public RangeMarker {
 public:
  /// Begins and ends the part of the program that a profiler records, if it was told to wait for it
  /// (capture range cudaProfilerApi of `nsys profile`).
  virtual void start_profiler() = 0;
  virtual void stop_profiler() = 0;
};

}  // namespace trireme
