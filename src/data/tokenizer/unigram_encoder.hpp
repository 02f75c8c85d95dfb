#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/tokenizer/tokenizer.hpp"
#include "src/data/tokenizer/word_table.hpp"

namespace trireme::data {

/// Unigram model of single words (Kudo 2018, arXiv:1804.10959): the tokens with the greatest sum of scores, the first
/// found on ties, by Viterbi's algorithm in fp64, as in tokenizers. A character that is no token counts as the lowest
/// score less 10. Such characters in a row become one unknown token or, with byte_fallback, the tokens of their bytes.
/// Special and added tokens do not come from words. Immutable after construction, hence thread-safe.
class UnigramEncoder {
 public:
  /// Throws DataError naming the token where the vocabulary contradicts itself.
  explicit UnigramEncoder(const BpeVocabulary& vocabulary);

  /// Appends the ids of a word. O(size) for any bytes, times the longest token.
  void encode(Word word, std::vector<std::int32_t>& ids) const;

 private:
  /// Node of a trie; its children follow one another, in the order of their bytes.
  struct Node {
    std::uint32_t first_child = 0, children = 0;
    std::int32_t id = -1;
    unsigned char byte = 0;
  };
  /// Returns the child of a node, 0 if there is none.
  std::uint32_t child(std::uint32_t node, unsigned char byte) const;
  void build_trie(std::vector<std::pair<std::string_view, std::int32_t>> tokens);
  void add_unknown(std::string_view text, std::vector<std::int32_t>& ids) const;

  std::vector<Node> nodes_{1};
  std::array<std::uint32_t, 256> roots_{};  // children of the root
  std::vector<double> scores_;
  double unknown_score_ = 0;
  std::int32_t unknown_ = 0;
  std::vector<std::int32_t> byte_ids_;  // empty without byte_fallback
};

}  // namespace trireme::data
