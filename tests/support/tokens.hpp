#pragma once

#include <cstdint>
#include <random>
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

/// Returns random text of that many pieces: letters, marks, numbers, signs, ideographs and white space of one to four
/// bytes, contractions, controls, runs, and bytes that are not UTF-8.
inline std::string random_text(std::mt19937& random, std::size_t pieces) {
  static const std::vector<std::string> all = {
      "a",      "b",      "Z",      "word",   " word",  "7",      "2024",   " ",      " ",        "  ",        "\n",
      "\r\n",   "\t",     "\v",     "'",      "'s",     "'re",    "'LL",    "'x",     ".",        "--",        "/",
      "\u00E9", "\u0301", "\u03A3", "\u03C3", "\u0130", "\u00A0", "\u2003", "\u3000", "\u4E2D",   "\u0661",    "\u2014",
      "\u0915", "\u0940", "\u200D", "\u01C5", "\uFFFD", "\x01",   "\x7F",   "\xFF",   "\xE2\x82", "\U0001F600"};
  std::string text;
  for (std::size_t i = 0; i < pieces; ++i) {
    const std::string& piece = all[random() % all.size()];
    const std::size_t times = random() % 100 == 0 ? random() % 80 : 1;
    for (std::size_t time = 0; time < times; ++time) text += piece;
  }
  return text;
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
