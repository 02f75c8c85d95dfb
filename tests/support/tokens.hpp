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

/// Returns a BPE of characters with the form of Llama 2: <unk> 0, <s> 1, </s> 2, the 256 bytes from 3 on, the
/// characters of ASCII and U+2581, and the tokens that `merges` make. A space is put before each text.
inline data::BpeVocabulary characters_of(std::vector<std::pair<std::string, std::string>> merges) {
  data::BpeVocabulary vocabulary;
  vocabulary.tokens = {"<unk>", "<s>", "</s>"};
  vocabulary.special = {0, 1, 2};
  vocabulary.end_of_document = 2;
  for (std::size_t byte = 0; byte < 256; ++byte) vocabulary.tokens.push_back(data::byte_token(byte));
  for (char c = '!'; c <= '~'; ++c) vocabulary.tokens.emplace_back(1, c);
  vocabulary.tokens.emplace_back("\u2581");
  for (const auto& [left, right] : merges) {
    if (left + right != vocabulary.tokens[2]) vocabulary.tokens.push_back(left + right);
  }
  std::erase_if(merges, [](const auto& merge) { return merge.second.empty(); });  // a token alone
  vocabulary.merges = std::move(merges);
  using Kind = data::NormalizerStep::Kind;
  vocabulary.normalizer = {{Kind::prepend, "\u2581"}, {Kind::replace, " ", "\u2581"}};
  vocabulary.characters.emplace();
  return vocabulary;
}

}  // namespace trireme::test
