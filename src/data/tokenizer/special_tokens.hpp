#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::data {

/// Frequency of each spelling.
using SpellingCounts = std::map<std::string, std::int64_t>;

/// Finds the spellings of a tokenizer's special tokens in text, where encoding treats them as ordinary text.
class SpecialTokenFinder {
 public:
  explicit SpecialTokenFinder(const Tokenizer& tokenizer);
  /// Adds the spellings in `text` to `counts`. The longest of several at the same byte counts.
  void count(std::string_view text, SpellingCounts& counts) const;

 private:
  std::string_view spelling_at(std::string_view text) const;

  std::vector<std::string> spellings_;  // sorted
  std::string first_bytes_;             // first bytes of the tokens, each once
};

}  // namespace trireme::data
