#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// Replacements of characters and of short sequences of them, as SentencePiece compiles them into a model
/// (`precompiled_charsmap`): the number of bytes of a double array (Darts), the array, and texts that end in a zero.
class PrecompiledCharsmap {
 public:
  /// A replacement has at most so many times the bytes of what it replaces.
  static constexpr std::size_t max_growth = 16;

  /// Throws DataError if the sizes contradict each other.
  explicit PrecompiledCharsmap(std::string_view data);
  /// Returns the text as `Precompiled` of tokenizers changes it: of each grapheme of fewer than 6 bytes the
  /// replacement, if there is one, else the replacements of its characters. As there, that of a grapheme's first bytes
  /// applies to all of it. Throws DataError where a replacement is too long.
  std::string apply(std::string_view text) const;

 private:
  /// Returns the replacement of the shortest beginning of `key` that has one.
  std::optional<std::string_view> replacement(std::string_view key) const;

  std::vector<std::uint32_t> units_;
  std::string texts_;
};

}  // namespace trireme::data
