#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/base/trace.hpp"
#include "src/plan/timeline.hpp"

namespace trireme::io {

/// Returns one rank's events in the Trace Event Format, separated by commas. `process` is the rank's display name.
std::string trace_events(std::span<const TraceSpan> spans, const std::string& process, int rank);

/// Beginning and end of a file of such events.
constexpr const char* trace_begin = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
constexpr const char* trace_end = "\n]}\n";

/// Reads the events with a duration from the text of such a file. DataError that names `path` for any other text.
std::vector<plan::TraceEvent> read_trace(const std::string& text, const std::string& path);

}  // namespace trireme::io
