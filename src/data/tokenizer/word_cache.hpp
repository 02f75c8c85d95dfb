#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "src/base/zero_pages.hpp"
#include "src/data/tokenizer/word_table.hpp"

namespace trireme::data {

/// The next words of a text, in its order.
class WordBatch {
 public:
  void clear() { count_ = 0; }
  /// Returns whether the words of a block of 64 bytes fit.
  bool has_room() const { return count_ + 64 + at_once <= words_.size(); }
  void add(const char* begin, const char* end) { words_[count_++] = {begin, end}; }
  /// Adds the words of a block, one for each bit of `ends`. Bit i of `begins` and `ends` is of byte i. Returns the end
  /// of the last one.
  const char* add(const char* block, std::uint64_t begins, std::uint64_t ends) {
    const auto count = static_cast<std::size_t>(std::popcount(ends));
    Word* const out = words_.data() + count_;
    for (std::size_t i = 0; i < count; i += at_once) {
#pragma GCC unroll 8
      for (std::size_t j = 0; j < at_once; ++j) {  // few branches, since their number varies
        out[i + j] = {block + std::countr_zero(begins), block + std::countr_zero(ends)};
        begins &= begins - 1;
        ends &= ends - 1;
      }
    }
    count_ += count;
    return out[count - 1].end;
  }
  std::span<const Word> words() const { return {words_.data(), count_}; }
  static constexpr std::size_t capacity = 208;

 private:
  static constexpr std::size_t at_once = 8;
  std::array<Word, capacity> words_;
  std::size_t count_ = 0;
};

/// Ids of words that occurred lately. Two words share a line of 64 bytes with their ids. A third one takes the line
/// beside it if that has room, else replaces one of the two. For one thread at a time.
class WordCache {
 public:
  /// For ids below `vocabulary_size`.
  explicit WordCache(std::size_t vocabulary_size)
      : has_narrow_ids_(vocabulary_size <= std::size_t{1} << 16),
        lines_(line_count),
        overflowed_(line_count / 64),
        store_(max_store) {}

  /// Appends the ids of all words, which end at `text_end` or before. `encode(word, ids)` appends those of a word that
  /// is not in the cache.
  template <class Encode>
  void encode(std::span<const Word> words, const char* text_end, std::vector<std::int32_t>& ids, const Encode& encode) {
    has_narrow_ids_ ? encode_as<NarrowIds>(words, text_end, ids, encode)
                    : encode_as<WideIds>(words, text_end, ids, encode);
  }

 private:
  static constexpr int line_bits = 18;  // 16 MiB, of which the lines of frequent words stay in the L2
  static constexpr std::size_t line_count = std::size_t{1} << line_bits;
  static constexpr std::size_t max_word_bytes = 256, max_store = std::size_t{1} << 21;
  static constexpr std::int32_t is_stored = INT32_MIN;

  /// Ids of a word. More than fit, and those of a longer word, are in the store, with the bytes of a longer word before
  /// them: then come the place there, the number of ids, 0 and `is_stored`.
  using Ids = std::array<std::int32_t, 4>;
  /// Up to four ids. With fewer the last element is their number - 4.
  struct WideIds {
    static constexpr std::size_t most = 4, written = 4;
    static bool fit(const Ids& ids) { return ids[3] != is_stored; }
    static std::int32_t count(const Ids& ids) { return 4 + (ids[3] & ids[3] >> 31); }  // min without a branch
    static void unpack(const Ids& ids, std::int32_t* out) { std::memcpy(out, ids.data(), sizeof(ids)); }
    static Ids pack(std::span<const std::int32_t> unpacked);
  };
  /// Up to seven ids of 16 bits, then their number.
  struct NarrowIds {
    static constexpr std::size_t most = 7, written = 8;
    static bool fit(const Ids& ids) { return ids[3] >= 0; }
    static std::int32_t count(const Ids& ids) { return ids[3] >> 16; }
    static void unpack(const Ids& ids, std::int32_t* out) {
      std::array<std::uint16_t, written> packed;
      std::memcpy(packed.data(), ids.data(), sizeof(ids));
      for (std::size_t i = 0; i < written; ++i) out[i] = packed[i];
    }
    static Ids pack(std::span<const std::int32_t> unpacked);
  };

  struct Slot {
    WordKey key{};  // a longer word has its hash, and its size with the highest bit set
    Ids ids{};
  };
  struct alignas(64) Line {
    std::array<Slot, 2> slots;
  };

  static WordKey key_of_longer(Word word);
  static std::size_t line_of(WordKey key) { return key.hash() >> (64 - line_bits); }
  const Slot* find_beside(const Line* line, WordKey key) const;
  template <class Format, class Encode>
  void encode_as(std::span<const Word> words, const char* text_end, std::vector<std::int32_t>& ids,
                 const Encode& encode);
  bool has_bytes(const Slot& slot, Word word) const;
  void insert(Word word, WordKey key, std::span<const std::int32_t> ids);
  Slot& place_for(WordKey key);

  bool has_narrow_ids_;
  ZeroPages<Line> lines_;
  std::vector<std::uint64_t> overflowed_;  // a bit for each line: words of it may be in the line beside it
  ZeroPages<std::int32_t> store_;
  std::size_t stored_ = 0;      // elements of the store in use
  std::uint32_t replaced_ = 0;  // number of words that replaced another one
};

/// Makes room for the ids that a large text is likely to have. Growth by doubling would copy them.
inline void make_room(std::size_t text_bytes, std::vector<std::int32_t>& ids) {
  const std::size_t likely = text_bytes / 2;
  if (text_bytes < std::size_t{1} << 16 || ids.capacity() - ids.size() >= likely) return;
  ids.reserve(std::max(ids.size() + likely, 2 * ids.capacity()));
}

/// The caches of a tokenizer: as many as threads encode at the same time.
class WordCaches {
 public:
  explicit WordCaches(std::size_t vocabulary_size) : vocabulary_size_(vocabulary_size) {}
  ~WordCaches();
  WordCaches& operator=(WordCaches&&) = delete;

  /// Calls `use` with a cache that no other thread has.
  template <class Use>
  void with_one(const Use& use) const {
    const std::unique_ptr<WordCache, GiveBack> cache(take(), GiveBack{this});
    use(*cache);
  }

 private:
  struct GiveBack {
    const WordCaches* caches;
    void operator()(WordCache* cache) const { caches->give_back(cache); }
  };
  WordCache* take() const;
  void give_back(WordCache* cache) const;

  struct alignas(64) Place {
    std::atomic<WordCache*> cache = nullptr;
  };
  std::size_t vocabulary_size_;
  mutable std::array<Place, 64> places_;
};

/// Slot of a word in the line beside its own, null if it is not there.
inline const WordCache::Slot* WordCache::find_beside(const Line* line, WordKey key) const {
  const std::size_t own = static_cast<std::size_t>(line - &lines_[0]);
  if ((overflowed_[own / 64] >> own % 64 & 1) == 0) return nullptr;
  const std::array<Slot, 2>& slots = lines_[own ^ 1].slots;
  return slots[0].key == key ? &slots[0] : slots[1].key == key ? &slots[1] : nullptr;
}

template <class Format, class Encode>
void WordCache::encode_as(std::span<const Word> words, const char* text_end, std::vector<std::int32_t>& ids,
                          const Encode& encode) {
  std::array<WordKey, WordBatch::capacity> keys;
  std::array<const Line*, WordBatch::capacity> places;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool is_short = words[i].size() <= WordKey::max_bytes;
    const WordKey key = is_short ? WordKey::of(words[i], text_end) : key_of_longer(words[i]);
    const Line* const place = &lines_[line_of(key)];
    __builtin_prefetch(place);
    keys[i] = key;
    places[i] = place;
  }
  std::array<std::int32_t, Format::written * WordBatch::capacity + max_word_bytes> buffer;
  std::int32_t* out = buffer.data();
  const auto flush = [&] {
    ids.insert(ids.end(), buffer.data(), out);
    out = buffer.data();
  };
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::array<Slot, 2>& slots = places[i]->slots;
    const Slot* slot = &slots[slots[1].key == keys[i] ? 1 : 0];
    if (slot->key == keys[i] && Format::fit(slot->ids)) [[likely]] {
      Format::unpack(slot->ids, out);
      out += Format::count(slot->ids);
      continue;
    }
    if (slot->key != keys[i]) slot = find_beside(places[i], keys[i]);
    if (slot != nullptr && Format::fit(slot->ids)) {
      Format::unpack(slot->ids, out);
      out += Format::count(slot->ids);
      continue;
    }
    if (slot != nullptr && has_bytes(*slot, words[i])) {
      const auto count = static_cast<std::size_t>(slot->ids[1]);
      const std::size_t needed = count + Format::written * (words.size() - i);
      if (needed > static_cast<std::size_t>(buffer.end() - out)) flush();
      out = std::copy_n(&store_[static_cast<std::size_t>(slot->ids[0])], count, out);
      continue;
    }
    flush();
    const std::size_t before = ids.size();
    encode(words[i], ids);
    insert(words[i], keys[i], std::span(ids).subspan(before));
  }
  flush();
}

}  // namespace trireme::data
