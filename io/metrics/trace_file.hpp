#pragma once

#include <string>

#include "src/comm/clock_offset.hpp"
#include "src/comm/communicator.hpp"
#include "src/tensor/trace_recorder.hpp"

namespace trireme::io {

/// The spans of all ranks of a job in one file of the Trace Event Format, which Perfetto and chrome://tracing show: a
/// process for each rank, microseconds by rank 0's clock. The offsets of the other clocks are measured at the beginning
/// and the end of the recording, and interpolated between.
class TraceFile {
 public:
  /// Begins the recording. `recorder` must live longer. Collective. Throws on every rank where rank 0 of `world` (host
  /// memory) cannot write the file: ConfigError where something else stands there, or IoError.
  TraceFile(std::string path, Communicator& world, TraceRecorder& recorder);
  /// Writes everything, and replaces the file when it is complete; rank 0 receives the spans of one rank after the
  /// other. `process` is the name that the rank is shown under. Returns a bound of the error in microseconds with which
  /// times of different ranks compare; the file has it as "clock_error_us". Collective, once. IoError on every rank
  /// where it fails.
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
