#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/tensor/trace_recorder.hpp"

namespace trireme {

/// Time in UTC with microseconds, "2026-11-28T09:30:00.012345"; `date` is a pattern for all but the fraction.
std::string utc_text(const char* date = "%FT%T");

/// Last communications that a rank has called, as lines of text in a file that outlives the process. Each call writes
/// its line before it communicates: a rank that hangs or dies has its last call there.
///
/// The file is a line that names the rank, "flight record 4 of rank 3 of 8 on host n1, process 77, since TIME", and a
/// ring of `kept` lines, each of `line_bytes` with its line feed. A call has the fields number, number in its channel,
/// time (UTC), group, first rank of the group, its size, operation, other rank or -, type, elements, the stream whose
/// work it follows (compute, host, other; - for a barrier), the function of the program that called, without arguments,
/// "model::Embedding::forward", its line in the sources, "src/model/stage/embedding.cpp:88", and its place: the ranges
/// that are open on its thread, from the outermost, "iteration/forward". The calls of a channel are in the same order
/// on its ranks: the collectives of a group, or the messages from one rank to another. `report::flight_findings`
/// compares the files of a job.
class FlightRecord final : public RangeMarker {
 public:
  static constexpr std::int64_t kept = 250, line_bytes = 320;

  /// Writes a line at a byte of the file.
  using Write = std::function<void(std::string_view line, std::int64_t offset)>;
  FlightRecord(Write write, int rank, int world_size);

  struct Call {
    std::int64_t number = 0;  ///< in its channel, from 1
    std::string_view group;
    int first_rank = 0, size = 0;
    std::string_view operation;
    int peer = -1;  ///< world rank that is sent to or received from
    std::string_view type;
    std::int64_t elements = 0;
    std::string_view stream = "-";
    std::string_view function = "-";
    std::string line = "-";
  };
  /// Thread-safe.
  void add(const Call& call);

  /// Ranges of one thread, which are passed on to `next`, if any. It must outlive the ranges.
  void pass_ranges_to(RangeMarker* next) { next_ = next; }
  void begin_range(const char* name) override;
  void end_range() override;

 private:
  void write(std::string line, std::int64_t at);

  Write write_;
  RangeMarker* next_ = nullptr;
  std::mutex mutex_;  // guards everything below
  std::int64_t calls_ = 0;
  std::vector<const char*> ranges_;
  std::thread::id thread_of_ranges_;
};

/// Returns a communicator that adds its calls to `record` and forwards them. `ranks` are the
/// world ranks of the group, in its order; `compute` is the stream that is called so. `record` must outlive the result.
std::unique_ptr<Communicator> recorded(std::unique_ptr<Communicator> inner, std::vector<int> ranks,
                                       const Stream& compute, FlightRecord& record);
/// Likewise of a communicator that must outlive the result.
std::unique_ptr<Communicator> recorded(Communicator& inner, std::vector<int> ranks, const Stream& compute,
                                       FlightRecord& record);

}  // namespace trireme
