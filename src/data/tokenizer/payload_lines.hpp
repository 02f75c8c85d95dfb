#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"

namespace trireme::data {

/// Limit of tokens and of merges, above any real vocabulary: a hostile file cannot exhaust memory.
inline constexpr std::int64_t max_vocabulary_size = std::int64_t{1} << 24;

/// `bytes` in printable ASCII: a backslash, and each byte that is not printable, as \xHH.
std::string escape_bytes(std::string_view bytes);
/// The inverse; throws DataError if an escape is broken.
std::string unescape_bytes(std::string_view text);
/// `escape_bytes` for a message, shortened.
std::string quotation_of(std::string_view bytes);

/// Sequential reader of an embedded tokenizer's lines. Throws DataError if one is missing or damaged.
class PayloadLines {
 public:
  explicit PayloadLines(std::string_view text) : rest_(text) {}

  std::string_view line();
  /// Reads the next line, which must be this one.
  void title(std::string_view expected);
  /// Reads a line of `count` numbers from 0 to `max_number`, separated by spaces.
  template <std::size_t count>
  std::array<std::int64_t, count> numbers(std::int64_t max_number) {
    const std::string_view text = line();
    const std::vector<std::string_view> parts = split(text, ' ');
    if (parts.size() != count || text.ends_with(' ')) refuse(text);
    std::array<std::int64_t, count> values{};
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = parse_number<std::int64_t>(parts[i]).value_or(-1);
      if (values[i] < 0 || values[i] > max_number) refuse(text);
    }
    return values;
  }
  /// Reads `count` escaped texts, one per line.
  std::vector<std::string> texts(std::int64_t count);
  /// The text after the lines read so far.
  std::string_view rest() const { return rest_; }
  /// Checks that no line is left.
  void finish() const;

 private:
  [[noreturn]] void refuse(std::string_view text) const;
  std::string_view rest_;
  std::int64_t number_ = 0;
};

}  // namespace trireme::data
