#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "src/base/timer.hpp"
#include "src/base/trace.hpp"
#include "src/tensor/stream.hpp"

namespace trireme {

/// Names parts of the work for a profiler beside the program. Ranges nest.
class RangeMarker {
 public:
  virtual ~RangeMarker() = default;
  virtual void begin_range(const char* name) = 0;
  virtual void end_range() = 0;
};

/// Records the spans of one rank, in the order of their ends. Spans of one rank lie within or beside one another. A
/// span begins and ends when the stream reaches the places where it was begun and ended: on a GPU work runs later than
/// it is enqueued.
class TraceRecorder {
 public:
  enum class Times { recorded, none };
  /// `stream`, that of the rank's work, and `marker` must live longer. The spans are ranges of `marker`, where there is
  /// one; without times they are nothing else. Waits for the stream.
  explicit TraceRecorder(Stream& stream, RangeMarker* marker = nullptr, Times times = Times::recorded)
      : stream_(stream), marker_(marker), has_times_(times == Times::recorded) {
    if (has_times_) set_mark();
  }

  /// Time of the host since the recorder's beginning.
  double now_us() const { return timer_.elapsed_ms() * 1000; }
  /// Begins a span where the stream is now, for `end`.
  std::unique_ptr<TimedEvent> begin(const char* name) {
    if (marker_ != nullptr) marker_->begin_range(name);
    return has_times_ ? stream_.record_time() : nullptr;
  }
  /// Ends it there. A device that fails is not reported here: its next call does so.
  void end(const TraceSpan& span, std::unique_ptr<TimedEvent> begin) noexcept;

  /// Waits for the stream and gives the spans since the last call their times, by the host's clock. Between two calls
  /// the device's clock counts; their agreement is renewed here. Call it once an iteration.
  void resolve();
  /// Spans that have their times.
  const std::vector<TraceSpan>& spans() const { return spans_; }
  /// Forgets these.
  void clear() { spans_.clear(); }
  /// Bound of the error that the translation between the clocks of device and host makes.
  double error_us() const { return error_us_; }

 private:
  struct Pending {
    TraceSpan span;
    std::unique_ptr<TimedEvent> begin, end;
  };
  /// Notes an event of the stream beside the host's time.
  void set_mark();

  Stream& stream_;
  RangeMarker* marker_;
  bool has_times_;
  Timer timer_;
  std::unique_ptr<TimedEvent> mark_;
  double mark_us_ = 0;
  double error_us_ = 0;
  std::vector<Pending> pending_;
  std::vector<TraceSpan> spans_;
};

/// Records the time from its construction to the end of its scope; does nothing without a recorder.
class TraceScope {
 public:
  TraceScope(TraceRecorder* recorder, const char* name, const char* category, int chunk = -1, int micro_batch = -1)
      : recorder_(recorder) {
    if (recorder_ == nullptr) return;
    span_ = {name, category, chunk, micro_batch, 0, 0};
    begin_ = recorder_->begin(name);
  }
  ~TraceScope() {
    if (recorder_ != nullptr) recorder_->end(span_, std::move(begin_));
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  TraceRecorder* recorder_;
  TraceSpan span_;
  std::unique_ptr<TimedEvent> begin_;
};

}  // namespace trireme
