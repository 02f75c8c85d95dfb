#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// Returns "1 rank" or "4 ranks" for the unit "rank", "2 batches" for "batch".
inline std::string counted(std::int64_t count, std::string_view unit) {
  return fmt::format("{} {}{}", count, unit, count == 1 ? "" : unit.ends_with("ch") ? "es" : "s");
}

/// Returns the parts of `text` between separators, as views of it. As with std::getline, an empty part after the last
/// separator does not count.
std::vector<std::string_view> split(std::string_view text, char separator);

/// Returns `text` with its control characters escaped: "\n", "\x1b", "\x00". Those in `kept` are not.
std::string visible(std::string_view text, std::string_view kept = "\n\t");

/// Returns `text` as UTF-8: each truncated character and each other byte that is not UTF-8 becomes one U+FFFD (Unicode
/// 15, section 3.9), as in texts of JSON.
std::string as_utf8(std::string_view text);

/// Returns whether `name` has 1 to `max_bytes` characters, all of A-Z a-z 0-9 . _ - /.
bool is_plain_name(std::string_view name, std::size_t max_bytes);

/// Quotes `text` on one line for a message: its first 200 bytes, cut at a character boundary, and " ..." for the rest.
/// Control characters are escaped.
std::string shortened(std::string_view text);

}  // namespace trireme
