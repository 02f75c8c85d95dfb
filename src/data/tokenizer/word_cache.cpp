#include "src/data/tokenizer/word_cache.hpp"

#include <algorithm>
#include <functional>
#include <thread>

#include "src/base/hash.hpp"

namespace trireme::data {
namespace {

/// Elements of the store that the bytes of a longer word take.
std::size_t stored_bytes(std::size_t size) {
  return size <= WordKey::max_bytes ? 0 : (size + sizeof(std::int32_t) - 1) / sizeof(std::int32_t);
}

}  // namespace

WordKey WordCache::key_of_longer(Word word) {
  return {hash64(word.begin, word.size(), 0), std::uint64_t{1} << 63 | word.size()};
}

bool WordCache::has_bytes(const Slot& slot, Word word) const {
  if (word.size() <= WordKey::max_bytes) return true;
  const std::int32_t* const end = &store_[static_cast<std::size_t>(slot.ids[0])];
  return std::memcmp(end - stored_bytes(word.size()), word.begin, word.size()) == 0;
}

WordCache::Ids WordCache::WideIds::pack(std::span<const std::int32_t> unpacked) {
  Ids ids{};
  ids[most - 1] = static_cast<std::int32_t>(unpacked.size()) - static_cast<std::int32_t>(most);
  std::ranges::copy(unpacked, ids.begin());
  return ids;
}

WordCache::Ids WordCache::NarrowIds::pack(std::span<const std::int32_t> unpacked) {
  std::array<std::uint16_t, written> packed{};
  std::ranges::transform(unpacked, packed.begin(), [](std::int32_t id) { return static_cast<std::uint16_t>(id); });
  packed[most] = static_cast<std::uint16_t>(unpacked.size());
  return std::bit_cast<Ids>(packed);
}

void WordCache::insert(Word word, WordKey key, std::span<const std::int32_t> ids) {
  if (word.size() > max_word_bytes) return;
  const std::size_t before_ids = stored_bytes(word.size());
  Slot slot{.key = key};
  if (before_ids == 0 && ids.size() <= (has_narrow_ids_ ? NarrowIds::most : WideIds::most)) {
    slot.ids = has_narrow_ids_ ? NarrowIds::pack(ids) : WideIds::pack(ids);
  } else {
    if (stored_ + before_ids + ids.size() > max_store) {
      stored_ = 0;
      std::fill(lines_.begin(), lines_.end(), Line{});
      std::ranges::fill(overflowed_, 0);
    }
    if (before_ids > 0) std::memcpy(&store_[stored_], word.begin, word.size());
    stored_ += before_ids;
    slot.ids = {static_cast<std::int32_t>(stored_), static_cast<std::int32_t>(ids.size()), 0, is_stored};
    std::ranges::copy(ids, &store_[stored_]);
    stored_ += ids.size();
  }
  place_for(key) = slot;
}

/// Slot for a word that is not in the cache: a free one of its line or of the line beside it, else one of its line.
WordCache::Slot& WordCache::place_for(WordKey key) {
  const std::size_t line = line_of(key);
  for (const std::size_t place : {line, line ^ 1}) {
    for (Slot& slot : lines_[place].slots) {
      if (slot.key != WordKey{}) continue;
      if (place != line) overflowed_[line / 64] |= std::uint64_t{1} << line % 64;
      return slot;
    }
  }
  return lines_[line].slots[replaced_++ & 1];
}

WordCaches::~WordCaches() {
  for (Place& place : places_) delete place.cache.load();
}

/// Takes the cache at the thread's own place, or any other one, or a new one.
WordCache* WordCaches::take() const {
  const std::size_t first = std::hash<std::thread::id>{}(std::this_thread::get_id());
  for (std::size_t i = 0; i < places_.size(); ++i) {
    Place& place = places_[(first + i) % places_.size()];
    if (place.cache.load(std::memory_order_relaxed) == nullptr) continue;
    if (WordCache* const cache = place.cache.exchange(nullptr)) return cache;
  }
  return new WordCache(vocabulary_size_);
}

void WordCaches::give_back(WordCache* cache) const {
  const std::size_t first = std::hash<std::thread::id>{}(std::this_thread::get_id());
  for (std::size_t i = 0; i < places_.size(); ++i) {
    WordCache* none = nullptr;
    if (places_[(first + i) % places_.size()].cache.compare_exchange_strong(none, cache)) return;
  }
  delete cache;
}

}  // namespace trireme::data
