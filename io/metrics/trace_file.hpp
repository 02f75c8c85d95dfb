#pragma once

#include <string>

#include "src/comm/clock_offset.hpp"
#include "src/comm/communicator.hpp"
#include "src/tensor/trace_recorder.hpp"

namespace trireme::io {

/// Writes the spans of all ranks to one file in the Trace Event Format, for Perfetto and chrome://tracing: one process
/// per rank, in microseconds of rank 0's clock. Offsets of the other clocks are measured at the start and end of the
/// recording, and interpolated in between.
class TraceFile {
 public:
  /// Begins the recording. `recorder` must outlive this object. Collective. Throws on every rank if rank 0 of `world`
  /// (host memory) cannot write the file: ConfigError if `path` is not a regular file, or IoError.
  TraceFile(std::string path, Communicator& world, TraceRecorder& recorder);
  /// Writes everything, and replaces the file once complete; rank 0 receives the spans rank by rank. `process` is the
  /// rank's display name. Returns a bound in microseconds on the clock error between ranks, stored as "clock_error_us".
  /// Collective, call once. IoError on every rank if it fails.
  double write(const std::string& process);

 private:
  /// This clock's offset, and the time of its measurement.
  struct Reading {
    ClockOffset offset;
    double at_us;
  };
  Reading read_clock() const;

  std::string path_;
  Communicator& world_;
  TraceRecorder& recorder_;
  Reading begin_{};
};

}  // namespace trireme::io
