#include "src/report/time_text.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "src/base/parse_number.hpp"

namespace trireme::report {
namespace {

std::string stamp(std::int64_t time, char between, std::string_view end) {
  using namespace std::chrono;
  const sys_seconds moment{seconds{time}};
  const sys_days day = floor<days>(moment);
  const year_month_day date(day);
  const hh_mm_ss clock(moment - day);
  return fmt::format("{:04}-{:02}-{:02}{}{:02}:{:02}:{:02}{}", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), between,
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count(), end);
}

/// Reads the whole number that is `text`; empty for other texts.
std::optional<int> number(std::string_view text) {
  const auto value = parse_number<int>(text);
  return value && *value >= 0 ? value : std::nullopt;
}

/// Reads the seconds of "Z", "+01:00" or "+0100".
std::optional<int> offset_seconds(std::string_view text) {
  if (text == "Z") return 0;
  if (text.size() != 5 && text.size() != 6) return {};
  if ((text[0] != '+' && text[0] != '-') || (text.size() == 6 && text[3] != ':')) return {};
  const auto hours = number(text.substr(1, 2)), minutes = number(text.substr(text.size() - 2));
  if (!hours || !minutes) return {};
  return (text[0] == '-' ? -1 : 1) * (*hours * 3600 + *minutes * 60);
}

}  // namespace

std::string utc_text(std::int64_t time) { return stamp(time, ' ', ""); }

std::string utc_stamp(std::int64_t time) { return stamp(time, 'T', "Z"); }

std::optional<std::int64_t> parse_time(std::string_view text) {
  using namespace std::chrono;
  constexpr std::string_view shape = "0000-00-00T00:00:00";
  if (text.size() <= shape.size()) return {};
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != '0' && text[i] != shape[i]) return {};
  }
  const auto year = number(text.substr(0, 4)), month = number(text.substr(5, 2)), day = number(text.substr(8, 2));
  const auto hour = number(text.substr(11, 2)), minute = number(text.substr(14, 2)),
             second = number(text.substr(17, 2));
  const auto offset = offset_seconds(text.substr(shape.size()));
  if (!year || !month || !day || !hour || !minute || !second || !offset) return {};
  const year_month_day date{std::chrono::year(*year), std::chrono::month(static_cast<unsigned>(*month)),
                            std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok() || *hour > 23 || *minute > 59 || *second > 60) return {};
  return seconds(sys_days(date).time_since_epoch()).count() + *hour * 3600 + *minute * 60 + *second - *offset;
}

std::string duration_text(double seconds) {
  if (!(seconds >= 0) || seconds > 1e12) return "?";
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
  return fmt::format("{} d {} h", whole / 86400, whole % 86400 / 3600);
}

}  // namespace trireme::report
