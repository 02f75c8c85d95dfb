#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/report/page.hpp"
#include "src/report/table.hpp"

namespace trireme::report {

/// Returns the time from the end of the ranks before, by the batch file, to this attempt's training: of a restart
/// inside a job; empty for any other attempt.
std::optional<std::int64_t> restart_seconds(const Run& run, std::size_t index);

/// Returns the state at the end of an attempt. `is_last`: no attempt follows.
State state_of(const Attempt& attempt, bool is_last);

/// Returns the ranks and the axes of a grid that divide them.
std::string grid_text(const AttemptStart& start);

/// Wall clock of an attempt: seconds since 1970, UTC.
struct Span {
  std::optional<std::int64_t> began, ended;
  bool is_open = false;  ///< no end was recorded: `ended` is the newest sign of the attempt

  std::int64_t seconds() const { return began && ended ? std::max<std::int64_t>(*ended - *began, 0) : 0; }
};

Span span_of(const Run& run, std::size_t index);

/// Returns the table of a run's attempts, under a heading.
std::string attempts_of(const Run& run, const Page& page);

}  // namespace trireme::report
