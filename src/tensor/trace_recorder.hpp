#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "src/base/timer.hpp"
#include "src/base/trace.hpp"
#include "src/tensor/stream.hpp"

namespace trireme {

/// Marks parts of the work for a profiler. Ranges nest.
class RangeMarker {
 public:
  virtual ~RangeMarker() = default;
  virtual void begin_range(const char* name) = 0;
  virtual void end_range() = 0;
};

/// Records the spans of one rank, in the order of their ends. Spans of one rank are nested or disjoint. A span begins
/// and ends when the stream reaches the points where it was begun and ended: on a GPU work runs later than it is
/// enqueued.
class TraceRecorder {
 public:
  enum class Times { recorded, none };
  /// `stream`, that of the rank's work, and `marker` must outlive this object. Spans are also ranges of `marker`, if
  /// any; without times they are only that. Waits for the stream.
  explicit TraceRecorder(Stream& stream, RangeMarker* marker = nullptr, Times times = Times::recorded)
      : stream_(stream), marker_(marker), has_times_(times == Times::recorded) {
    if (has_times_) set_mark();
  }

  bool has_times() const { return has_times_; }
  /// Host time since construction.
  double now_us() const { return timer_.elapsed_ms() * 1000; }
  /// Begins a span at the stream's current position, for `end`.
  std::unique_ptr<TimedEvent> begin(const char* name) {
    if (marker_ != nullptr) marker_->begin_range(name);
    return has_times_ ? stream_.record_time() : nullptr;
  }
  /// Ends it there. Device failures are reported by the device's next call.
  void end(const TraceSpan& span, std::unique_ptr<TimedEvent> begin) noexcept;

  /// Waits for the stream and assigns times by the host clock to the spans since the last call. Between two calls the
  /// device clock counts; they are resynchronised here. Call it once per iteration.
  void resolve();
  /// Spans with times assigned.
  const std::vector<TraceSpan>& spans() const { return spans_; }
  void clear() { spans_.clear(); }
  /// Error bound of the conversion between device and host clocks.
  double error_us() const { return error_us_; }

 private:
  struct Pending {
    TraceSpan span;
    std::unique_ptr<TimedEvent> begin, end;
  };
  /// Pairs an event of the stream with the host time.
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
  TraceScope& operator=(TraceScope&&) = delete;

 private:
  TraceRecorder* recorder_;
  TraceSpan span_;
  std::unique_ptr<TimedEvent> begin_;
};

}  // namespace trireme
