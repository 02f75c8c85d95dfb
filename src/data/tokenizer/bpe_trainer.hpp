#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/data/tokenizer/split_words.hpp"
#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::data {

/// Frequencies of the words of a text. Words longer than `max_word_bytes` count as several.
class WordCounts {
 public:
  static constexpr std::size_t max_word_bytes = 256;

  /// Counts every word of `text`.
  void add_text(std::string_view text, const SplitWords& splits);
  /// Adds the words of `other` in `partition` of `partitions`: every word is in exactly one.
  void add(const WordCounts& other, std::size_t partition, std::size_t partitions);
  /// Removes the words that occur at most `count` times. Returns the sum of their frequencies.
  std::int64_t forget(std::int64_t count);

  std::size_t size() const { return counts_.size(); }
  void clear() { counts_.clear(); }
  /// Every word once, sorted by its bytes.
  std::vector<std::pair<std::string, std::int64_t>> sorted() const;

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  void add_word(std::string_view word, std::int64_t count);
  std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>> counts_;
};

struct BpeTrainingOptions {
  std::int64_t vocabulary_size = 32000;  ///< including bytes, merges and special tokens
  std::int64_t min_frequency = 2;        ///< least frequency of a pair that becomes a token
  std::vector<std::string> special_tokens{"<|endoftext|>"};
};

/// Trains a byte-pair encoding on given words (Sennrich, Haddow, Birch 2016). The most frequent pair of neighbouring
/// tokens within words becomes a token, repeatedly; ties go to the smaller ids, left before right. A pair that would
/// spell an existing token is skipped. Ids are the 256 bytes in the order of GPT-2's vocabulary, then a token for each
/// merge, then the special tokens. The first special token ends documents. The vocabulary is smaller than requested if
/// no pair is frequent enough. `progress` is called periodically with the merges made and requested.
BpeVocabulary train_bpe(const std::vector<std::pair<std::string, std::int64_t>>& words,
                        const BpeTrainingOptions& options,
                        const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace trireme::data
