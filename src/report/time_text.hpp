#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::report {

/// Returns "2026-11-23 21:10:00" of seconds since 1970, UTC.
std::string utc_text(std::int64_t time);

/// Likewise in the form of files, "2026-11-23T21:10:00Z".
std::string utc_stamp(std::int64_t time);

/// Reads "2026-11-23T21:10:00" with "Z" or an offset such as "+01:00" (ISO 8601, `date -Is`). Empty for other texts.
std::optional<std::int64_t> parse_time(std::string_view text);

/// Returns "2 d 3 h", "5 h 20 min", "3 min 10 s" or "4.2 s"; "?" of what is no duration.
std::string duration_text(double seconds);

}  // namespace trireme::report
