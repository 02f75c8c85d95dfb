#include "src/report/time_text.hpp"

#include <fmt/chrono.h>

#include <ctime>

#include "src/base/timer.hpp"

namespace trireme::report {

std::string utc_text(std::int64_t time) { return fmt::format("{:%F %T}", fmt::gmtime(std::time_t{time})); }

std::string utc_stamp(std::int64_t time) { return fmt::format("{:%FT%TZ}", fmt::gmtime(std::time_t{time})); }

std::optional<std::int64_t> parse_time(std::string_view text) {
  const std::string copy(text);
  std::tm parts{};
  if (strptime(copy.c_str(), "%Y-%m-%dT%H:%M:%S%z", &parts) != copy.c_str() + copy.size()) return {};
  const std::int64_t offset = parts.tm_gmtoff, local = timegm(&parts);
  // Rejects other spellings, and dates such as 30 February.
  if (!text.starts_with(fmt::format("{:%FT%T}", parts))) return {};
  return local - offset;
}

std::string duration_text(double seconds) {
  if (!(seconds >= 0) || seconds > 1e12) return "?";
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  return trireme::duration_text(seconds);
}

}  // namespace trireme::report
