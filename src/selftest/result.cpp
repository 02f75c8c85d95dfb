#include "src/selftest/result.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "src/base/check.hpp"

namespace trireme::selftest {
namespace {

constexpr std::size_t field_count = 11;

/// Returns the text with control characters replaced by spaces, and trailing ones removed. MPI's version ends with a
/// zero.
std::string one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

double number_of(const std::string& text) { return std::strtod(text.c_str(), nullptr); }

}  // namespace

std::string_view name_of(Verdict verdict) {
  constexpr std::string_view names[] = {"FAILED", "SLOW", "differs", "skipped", "ok"};
  return names[static_cast<int>(verdict)];
}

std::string text_of(const std::vector<Result>& results) {
  std::string text;
  for (const Result& r : results) {
    text += fmt::format("{}\t{}\t{}\t{}\t{:.17g}\t{}\t{:.17g}\t{:.17g}\t{}\t{}\t{}\n", one_line(r.check),
                        one_line(r.item), static_cast<int>(r.kind), r.passed ? 1 : 0, r.value, one_line(r.unit),
                        r.expected, r.min_share, one_line(r.detail), r.rank, one_line(r.host));
  }
  return text;
}

std::vector<Result> results_of(const std::string& text) {
  std::vector<Result> results;
  for (const std::string& line : split(text, '\n')) {
    if (line.empty()) continue;
    const std::vector<std::string> f = split(line, '\t');
    TRIREME_CHECK(f.size() == field_count, EnvironmentError, "a result of {} fields instead of {}: '{}'", f.size(),
                  field_count, line);
    results.push_back({.check = f[0],
                       .item = f[1],
                       .kind = static_cast<Kind>(std::atoi(f[2].c_str())),
                       .passed = f[3] == "1",
                       .value = number_of(f[4]),
                       .unit = f[5],
                       .expected = number_of(f[6]),
                       .min_share = number_of(f[7]),
                       .detail = f[8],
                       .rank = std::atoi(f[9].c_str()),
                       .host = f[10]});
  }
  return results;
}

}  // namespace trireme::selftest
