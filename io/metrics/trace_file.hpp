#pragma once

#include <fstream>
#include <string>

#include "src/base/trace.hpp"
#include "src/comm/communicator.hpp"

namespace trireme::io {

/// The spans of all ranks of a job in one file of the Trace Event Format, which Perfetto and chrome://tracing show: a
/// process for each rank, microseconds since the recorders' beginning.
class TraceFile {
 public:
  /// Rank 0 of `world` (host memory) creates the file. Collective. IoError on every rank where it cannot.
  TraceFile(std::string path, Communicator& world);
  /// Writes everything; rank 0 receives the spans of one rank after the other. `process` is the name that the rank is
  /// shown under. Collective, once. IoError on every rank where it fails.
  void write(const TraceRecorder& recorder, const std::string& process);

 private:
  std::string path_;
  Communicator& world_;
  std::ofstream file_;
};

}  // namespace trireme::io
