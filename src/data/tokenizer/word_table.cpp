#include "src/data/tokenizer/word_table.hpp"

namespace trireme::data {

WordTable::WordTable(std::size_t words)
    : filter_(words),
      slots_(std::bit_ceil(std::max<std::size_t>(2 * words, 2))),
      shift_(64 - std::countr_zero(slots_.size())) {}

void WordTable::insert(std::string_view word, std::int32_t id) {
  if (word.size() > WordKey::max_bytes) {
    longer_.insert_or_assign(std::string(word), id);
    return;
  }
  const char* const end = word.data() + word.size();
  const WordKey key = WordKey::of({word.data(), end}, end);
  filter_.add(key.hash());
  slots_[slot_of(key)] = {key, id};
}

}  // namespace trireme::data
