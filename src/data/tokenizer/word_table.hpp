#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trireme::data {

/// Bytes of a text that are encoded together.
struct Word {
  const char* begin;
  const char* end;
  std::size_t size() const { return static_cast<std::size_t>(end - begin); }
  std::string_view text() const { return {begin, size()}; }
};

/// A word of up to 15 bytes, zero-padded, with its size in the last byte. No word is all zero.
struct WordKey {
  static constexpr std::size_t max_bytes = 15;
  std::uint64_t low, high;
  /// Compares without a branch between the two halves.
  bool operator==(const WordKey& other) const { return ((low ^ other.low) | (high ^ other.high)) == 0; }
  /// Reads bytes up to `text_end`, which is not before the word's end.
  static WordKey of(Word word, const char* text_end);
  std::uint64_t hash() const {
    constexpr std::uint64_t golden_ratio = 0x9E3779B97F4A7C15u;
    return (low ^ std::rotl(high * golden_ratio, 32)) * golden_ratio;
  }
};

/// Set of hashes that excludes nearly all others, and fits in the L2 where the table does not.
class HashFilter {
 public:
  explicit HashFilter(std::size_t hashes = 0)
      : bits_(std::bit_ceil(std::max<std::size_t>(16 * hashes, 64)) / 64),
        shift_(58 - std::countr_zero(bits_.size())) {}
  void add(std::uint64_t hash) { bits_[hash >> shift_ >> 6] |= std::uint64_t{1} << (hash >> shift_ & 63); }
  bool may_have(std::uint64_t hash) const { return (bits_[hash >> shift_ >> 6] >> (hash >> shift_ & 63) & 1) != 0; }

 private:
  std::vector<std::uint64_t> bits_;
  int shift_;
};

/// Ids of words, in a flat table if they have up to 15 bytes.
class WordTable {
 public:
  /// Makes a table for up to `words` words.
  explicit WordTable(std::size_t words = 0);
  /// Adds a word, or changes its id.
  void insert(std::string_view word, std::int32_t id);
  /// Returns the id of a word, -1 if it has none. Bytes may be read up to `text_end`, which is not before its end.
  std::int32_t find(Word word, const char* text_end) const;

 private:
  struct Slot {
    WordKey key{};
    std::int32_t id = -1;
  };
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::size_t slot_of(WordKey key) const;

  HashFilter filter_;
  std::vector<Slot> slots_;  // open addressing, at most half full
  int shift_;
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> longer_;
};

[[gnu::always_inline]] inline WordKey WordKey::of(Word word, const char* text_end) {
  static constexpr auto masks = [] {
    std::array<WordKey, max_bytes + 1> result{};
    for (std::size_t size = 0; size <= max_bytes; ++size) {
      for (std::size_t i = 0; i < size; ++i) {
        (i < 8 ? result[size].low : result[size].high) |= std::uint64_t{0xFF} << 8 * (i % 8);
      }
    }
    return result;
  }();
  const std::size_t size = word.size();
  WordKey key{};
  if (text_end - word.begin >= 16) {
    std::memcpy(&key, word.begin, 16);
    key.low &= masks[size].low;
    key.high &= masks[size].high;
  } else {
    std::memcpy(&key, word.begin, size);
  }
  key.high |= std::uint64_t{size} << 56;
  return key;
}

/// Slot that holds `key`, or the free one where it belongs.
inline std::size_t WordTable::slot_of(WordKey key) const {
  std::size_t slot = key.hash() >> shift_;
  while (slots_[slot].id >= 0 && slots_[slot].key != key) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

inline std::int32_t WordTable::find(Word word, const char* text_end) const {
  if (word.size() <= WordKey::max_bytes) {
    const WordKey key = WordKey::of(word, text_end);
    return filter_.may_have(key.hash()) ? slots_[slot_of(key)].id : -1;
  }
  if (longer_.empty()) return -1;
  const auto found = longer_.find(word.text());
  return found == longer_.end() ? -1 : found->second;
}

}  // namespace trireme::data
