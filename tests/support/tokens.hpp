#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::test {

inline std::vector<std::int32_t> encode(const data::Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

inline std::string decode(const data::Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  std::string bytes;
  tokenizer.decode(ids, bytes);
  return bytes;
}

/// Returns a byte-level BPE: 256 bytes, the tokens that `merges` make, and <|endoftext|>.
inline data::BpeVocabulary vocabulary_of(std::vector<std::pair<std::string, std::string>> merges) {
  data::BpeVocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  for (const auto& [left, right] : merges) vocabulary.tokens.push_back(left + right);
  vocabulary.end_of_document = static_cast<std::int32_t>(vocabulary.tokens.size());
  vocabulary.tokens.emplace_back("<|endoftext|>");
  vocabulary.merges = std::move(merges);
  return vocabulary;
}

}  // namespace trireme::test
