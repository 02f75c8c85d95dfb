#pragma once

#include <fmt/format.h>

#include <fstream>
#include <string>

namespace trireme::test {

/// A small byte-level BPE in GPT-2's two files: all bytes, a few merges, some across
/// white space, and <|endoftext|>.
struct SmallBpe {
  std::string vocabulary_path;
  std::string merges_path;

  explicit SmallBpe(const std::string& directory)
      : vocabulary_path(directory + "/encoder.json"), merges_path(directory + "/vocab.bpe") {
    std::string entries;
    int id = 0;
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      entries += fmt::format("\"\\u{:04x}\": {}, ", printable ? byte : next++, id++);
    }
    std::ofstream merges(merges_path);
    merges << "#version: 0.2\n";
    for (const auto& [left, right] : {std::pair("t", "h"),
                                      {"th", "e"},
                                      {"\u0120", "the"},
                                      {"a", "n"},
                                      {"\u0120", "\u0120"},
                                      {"i", "n"},
                                      {"\u010a", "\u010a"},
                                      {"'", "s"},
                                      {"1", "2"},
                                      {"\u00c2", "\u0142"},
                                      {"\u00c2\u0142", "\u0120"}}) {
      merges << left << ' ' << right << '\n';
      entries += fmt::format("\"{}{}\": {}, ", left, right, id++);
    }
    std::ofstream(vocabulary_path) << '{' << entries << "\"<|endoftext|>\": " << id << '}';
  }
};

}  // namespace trireme::test
