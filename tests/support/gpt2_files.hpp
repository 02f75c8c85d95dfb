#pragma once

#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::test {

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// GPT-2's vocabulary from `encoder.json` and `vocab.bpe`, which write bytes as printable characters. Those of Latin-1
/// that print stand for themselves, the other bytes are U+0100, U+0101 ... in order.
inline data::BpeVocabulary read_gpt2_files(const std::string& encoder_json, const std::string& vocab_bpe) {
  std::map<std::string, char> byte_of;
  int others = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const int code_point = prints ? byte : 0x100 + others++;
    std::string text;
    if (code_point >= 0x80) text += static_cast<char>(0xC0 | code_point >> 6);
    text += static_cast<char>(code_point >= 0x80 ? 0x80 | (code_point & 0x3F) : code_point);
    byte_of[text] = static_cast<char>(byte);
  }
  const auto bytes_of = [&](const std::string& text) {
    std::string bytes;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = (text[at] & 0x80) != 0 ? 2 : 1;
      bytes += byte_of.at(text.substr(at, size));
      at += size;
    }
    return bytes;
  };
  data::BpeVocabulary vocabulary;
  const auto encoder = nlohmann::json::parse(read_file(encoder_json));
  vocabulary.tokens.resize(encoder.size());
  for (const auto& [token, id] : encoder.items()) {
    vocabulary.tokens.at(id.get<std::size_t>()) = bytes_of(token);
    if (token == "<|endoftext|>") vocabulary.end_of_document = id.get<std::int32_t>();
  }
  std::ifstream merges(vocab_bpe);
  std::string left, right;
  std::getline(merges, left);  // #version
  while (merges >> left >> right) vocabulary.merges.emplace_back(bytes_of(left), bytes_of(right));
  return vocabulary;
}

}  // namespace trireme::test
