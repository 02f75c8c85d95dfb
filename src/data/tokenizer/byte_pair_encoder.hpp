#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/data/tokenizer/tokenizer.hpp"
#include "src/data/tokenizer/word_table.hpp"

namespace trireme::data {

/// Byte-pair encoding of single words: starting from the bytes, or the characters of a `CharacterForm`, the pair with
/// the best merge, the leftmost of equals, becomes one token until no pair has a merge. With
/// `BpeVocabulary::whole_words` a word that is a token is not split. Immutable after construction, hence thread-safe.
///
/// A character without a token becomes the tokens of its bytes, which no merge joins. Special tokens never come from
/// text: merges that would make one are left out.
class BytePairEncoder {
 public:
  /// Throws DataError naming the token or merge where the vocabulary contradicts itself.
  explicit BytePairEncoder(const BpeVocabulary& vocabulary);

  /// Appends the ids of a word; bytes may be read up to `text_end`, which is not before the word's end. O(size log
  /// size) for any bytes.
  void encode(Word word, const char* text_end, std::vector<std::int32_t>& ids) const;

  /// Sides of each merge, best first.
  const std::vector<std::pair<std::int32_t, std::int32_t>>& merges() const { return merges_; }

 private:
  using TokenIds = std::unordered_map<std::string_view, std::int32_t>;
  struct MergeSlot {
    std::int32_t left = -1, right = -1;
    std::uint32_t rank = 0;
  };

  static std::uint64_t merge_hash(std::int32_t left, std::int32_t right);
  std::size_t merge_slot(std::int32_t left, std::int32_t right) const;
  std::uint32_t rank_of(std::int32_t left, std::int32_t right) const;
  void add_first_tokens(const BpeVocabulary& vocabulary, const TokenIds& ids);
  void add_merges(const BpeVocabulary& vocabulary, const TokenIds& ids);
  void add_words(const BpeVocabulary& vocabulary);
  std::size_t first_tokens(const char* word, std::size_t size, std::int32_t* tokens, std::uint32_t* ranks) const;
  void encode_short(const char* word, std::size_t size, std::vector<std::int32_t>& ids) const;
  void encode_long(const char* word, std::size_t size, std::vector<std::int32_t>& ids) const;

  std::array<std::int32_t, 256> byte_ids_{};
  std::vector<std::int32_t> character_ids_;  // by code point, -1 for bytes; empty: words start from bytes
  std::vector<std::pair<std::int32_t, std::int32_t>> merges_;
  std::vector<std::int32_t> merged_;            // id that each merge makes
  std::vector<std::uint32_t> byte_pair_ranks_;  // [256, 256]: rank_of for two bytes, or two characters of ASCII
  HashFilter merge_filter_;
  std::vector<MergeSlot> merge_slots_;  // open addressing
  WordTable words_;                     // words that are one token
  int merge_shift_ = 0;
};

}  // namespace trireme::data
