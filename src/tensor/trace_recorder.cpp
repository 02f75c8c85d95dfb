#include "src/tensor/trace_recorder.hpp"

#include <algorithm>

#include "src/base/error.hpp"

namespace trireme {

void TraceRecorder::end(const TraceSpan& span, std::unique_ptr<TimedEvent> begin) noexcept {
  if (marker_ != nullptr) marker_->end_range();
  if (!has_times_) return;
  try {
    pending_.push_back({span, std::move(begin), stream_.record_time()});
  } catch (const Error&) {
    // The span is lost, which no longer matters.
  }
}

void TraceRecorder::set_mark() {
  stream_.synchronize();
  const double before_us = now_us();
  mark_ = stream_.record_time();
  stream_.synchronize();
  const double after_us = now_us();
  mark_us_ = (before_us + after_us) / 2;
  error_us_ = std::max(error_us_, (after_us - before_us) / 2);
}

void TraceRecorder::resolve() {
  if (!has_times_) return;
  stream_.synchronize();
  const auto time_us = [this](const TimedEvent& event) { return mark_us_ + 1000 * event.ms_since(*mark_); };
  for (Pending& pending : pending_) {
    pending.span.start_us = time_us(*pending.begin);
    pending.span.end_us = time_us(*pending.end);
    spans_.push_back(pending.span);
  }
  pending_.clear();
  set_mark();
}

}  // namespace trireme
