#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "src/base/hash.hpp"
#include "src/data/text/words.hpp"

namespace trireme::data {

/// The word n-grams of a text, words as in WordReader, each as a hash of 64 bits and its position.
class NgramReader {
 public:
  NgramReader(std::string_view text, int n);

  /// Advances to the next n-gram. Returns false at the end, or immediately if the text has fewer than n words.
  bool next();

  std::uint64_t hash() const { return mix64(sum_); }
  /// Byte range in the text, from the first word's start to the last word's end.
  std::size_t begin() const { return begins_[count_ % begins_.size()]; }
  std::size_t end() const { return words_.end(); }

 private:
  void add_word();

  WordReader words_;
  std::uint64_t oldest_factor_ = 1;    // the factor's n-th power
  std::vector<std::uint64_t> hashes_;  // hashes of the last n words, by their number modulo n
  std::vector<std::size_t> begins_;
  std::size_t count_ = 0;  // words so far
  std::uint64_t sum_ = 0;  // polynomial of the words' hashes
};

/// A set of hashes, each in a slot that is stable until the next insertion. Lookups are thread-safe.
class HashSet {
 public:
  HashSet();

  void insert(std::uint64_t hash);
  std::int64_t size() const { return size_; }

  /// Returns the slot of a hash, below `slots()`; -1 if it is not in the set.
  std::int64_t find(std::uint64_t hash) const {
    if (hash == 0) hash = 1;  // 0 marks a free slot
    for (std::size_t at = hash & mask_;; at = (at + 1) & mask_) {
      if (slots_[at] == hash) return static_cast<std::int64_t>(at);
      if (slots_[at] == 0) return -1;
    }
  }
  std::int64_t slots() const { return static_cast<std::int64_t>(slots_.size()); }

 private:
  void grow();
  std::vector<std::uint64_t> slots_;
  std::size_t mask_;
  std::int64_t size_ = 0;
};

/// A stretch of bytes of a text.
struct TextRange {
  std::size_t begin;
  std::size_t end;
  bool operator==(const TextRange&) const = default;
};

struct RemovalOptions {
  std::int64_t margin = 200;     ///< characters removed on either side of a passage, extended to the end of a sentence
  std::int64_t min_piece = 200;  ///< minimum characters of a kept piece
  std::int64_t max_cuts = 10;    ///< a text with more passages is removed entirely
};

/// Returns the rest of a text after `passages` were cut out with their surroundings: the pieces between, without ASCII
/// white space at their ends. Passages are sorted by their begin, and may overlap.
std::vector<TextRange> pieces_without(std::string_view text, std::span<const TextRange> passages,
                                      const RemovalOptions& options);

}  // namespace trireme::data
