#pragma once

#include <vector>

#include "src/base/timer.hpp"

namespace trireme {

/// Timed activity of a rank. Names are literals: recording allocates nothing but the list.
struct TraceSpan {
  const char* name = "";
  const char* category = "";
  int chunk = -1;  ///< chunk of a pipeline step; -1: none
  int micro_batch = -1;
  double start_us = 0;  ///< since the recorder's beginning
  double end_us = 0;
};

/// Records the spans of one rank, in the order of their ends. Spans of one rank lie within or beside one another.
class TraceRecorder {
 public:
  double now_us() const { return timer_.elapsed_ms() * 1000; }
  void add(const TraceSpan& span) { spans_.push_back(span); }
  const std::vector<TraceSpan>& spans() const { return spans_; }

 private:
  Timer timer_;
  std::vector<TraceSpan> spans_;
};

/// Records the time from its construction to the end of its scope; does nothing without a recorder.
class TraceScope {
 public:
  TraceScope(TraceRecorder* recorder, const char* name, const char* category, int chunk = -1, int micro_batch = -1)
      : recorder_(recorder) {
    if (recorder_ != nullptr) span_ = {name, category, chunk, micro_batch, recorder_->now_us(), 0};
  }
  ~TraceScope() {
    if (recorder_ == nullptr) return;
    span_.end_us = recorder_->now_us();
    recorder_->add(span_);
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  TraceRecorder* recorder_;
  TraceSpan span_;
};

}  // namespace trireme
