#include "src/data/tokenizer/special_tokens.hpp"

#include <algorithm>

namespace trireme::data {

SpecialTokenFinder::SpecialTokenFinder(const Tokenizer& tokenizer) : spellings_(tokenizer.special_spellings()) {
  std::ranges::sort(spellings_);
  for (const std::string& spelling : spellings_) {
    if (first_bytes_.find(spelling[0]) == first_bytes_.npos) first_bytes_ += spelling[0];
  }
}

void SpecialTokenFinder::count(std::string_view text, SpellingCounts& counts) const {
  for (const char first : first_bytes_) {
    for (std::size_t at = text.find(first); at != text.npos;) {
      const std::string_view found = spelling_at(text.substr(at));
      if (!found.empty()) ++counts[std::string(found)];
      at = text.find(first, at + std::max<std::size_t>(found.size(), 1));
    }
  }
}

/// Returns the longest spelling that `text` begins with; empty if none.
std::string_view SpecialTokenFinder::spelling_at(std::string_view text) const {
  // It is not greater than the text. Of the spellings that are not, it is the greatest with which the text begins.
  for (auto after = std::ranges::upper_bound(spellings_, text); after != spellings_.begin(); --after) {
    const std::string& spelling = *(after - 1);
    if (text.starts_with(spelling)) return spelling;
    if (spelling[0] != text[0]) break;
  }
  return {};
}

}  // namespace trireme::data
