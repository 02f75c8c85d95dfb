#include "src/data/tokenizer/byte_pair_encoder.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <queue>
#include <unordered_map>

#include "src/base/check.hpp"
#include "src/base/utf8.hpp"
#include "src/data/tokenizer/payload_lines.hpp"

namespace trireme::data {
namespace {

constexpr std::uint32_t no_merge = UINT32_MAX;
// Up to this size a linear search for the best pair is faster than a heap.
constexpr std::size_t max_short_word_bytes = 64;
// A heap entry holds rank and position in 24 and 40 bits.
constexpr int position_bits = 40;

constexpr std::uint64_t golden_ratio = 0x9E3779B97F4A7C15u;

/// Slots of an open-addressing table at most half full.
std::size_t table_size(std::size_t entries) { return std::bit_ceil(std::max<std::size_t>(2 * entries, 2)); }

/// Returns for each id whether it is special or added. Throws DataError for an id that the vocabulary lacks.
std::vector<bool> added_ids(const BpeVocabulary& vocabulary) {
  std::vector<bool> is_added(vocabulary.tokens.size());
  for (const auto* list : {&vocabulary.special, &vocabulary.added}) {
    for (const std::int32_t id : *list) {
      TRIREME_CHECK(id >= 0 && static_cast<std::size_t>(id) < is_added.size(), DataError,
                    "the added token {} is not in the vocabulary of {} ids", id, is_added.size());
      is_added[static_cast<std::size_t>(id)] = true;
    }
  }
  return is_added;
}

/// Returns for each id whether it never comes from text.
std::vector<bool> special_ids(const BpeVocabulary& vocabulary) {
  std::vector<bool> is_special(vocabulary.tokens.size());
  for (const std::int32_t id : vocabulary.special) is_special[static_cast<std::size_t>(id)] = true;
  is_special[static_cast<std::size_t>(vocabulary.end_of_document)] = true;
  return is_special;
}

void check_vocabulary(const BpeVocabulary& vocabulary) {
  const auto& tokens = vocabulary.tokens;
  TRIREME_CHECK(std::ssize(tokens) <= max_vocabulary_size && std::ssize(vocabulary.merges) < max_vocabulary_size,
                DataError, "the vocabulary has {} tokens and {} merges; at most {} are possible", tokens.size(),
                vocabulary.merges.size(), max_vocabulary_size);
  const std::int32_t end = vocabulary.end_of_document;
  TRIREME_CHECK(end >= 0 && static_cast<std::size_t>(end) < tokens.size(), DataError,
                "the vocabulary of {} tokens has no <|endoftext|>, the token that ends documents", tokens.size());
}

/// Returns the id of each token. A token may occur twice if one of the two is added: the other one counts.
std::unordered_map<std::string_view, std::int32_t> ids_of(const BpeVocabulary& vocabulary) {
  const auto& tokens = vocabulary.tokens;
  const std::vector<bool> is_added = added_ids(vocabulary);
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    TRIREME_CHECK(!tokens[id].empty(), DataError,
                  "the vocabulary has no token of id {}: ids must be 0 to {} without gaps", id, tokens.size() - 1);
    const auto [previous, is_new] = ids.emplace(tokens[id], static_cast<std::int32_t>(id));
    const bool one_is_added = is_added[id] || is_added[static_cast<std::size_t>(previous->second)];
    if (!is_new && one_is_added && !is_added[id]) previous->second = static_cast<std::int32_t>(id);
    TRIREME_CHECK(is_new || one_is_added, DataError, "the vocabulary has token '{}' twice, as id {} and id {}",
                  quotation_of(tokens[id]), previous->second, id);
  }
  return ids;
}

/// Throws DataError if a merge can never apply, since a side is not in `made` (neither a byte nor a merge result), or
/// if merges produce the token that ends documents.
void check_merges(const BpeVocabulary& vocabulary, const std::vector<std::pair<std::int32_t, std::int32_t>>& merges,
                  const std::vector<bool>& made) {
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    for (const std::int32_t side : {left, right}) {
      TRIREME_CHECK(made[static_cast<std::size_t>(side)], DataError,
                    "merge {} ('{}' + '{}'): '{}' is neither a byte nor made by a merge", rank + 1,
                    quotation_of(vocabulary.merges[rank].first), quotation_of(vocabulary.merges[rank].second),
                    quotation_of(vocabulary.tokens[static_cast<std::size_t>(side)]));
    }
  }
  const auto end = static_cast<std::size_t>(vocabulary.end_of_document);
  TRIREME_CHECK(!made[end], DataError, "token {} ('{}') is to end documents, but merges make it from text", end,
                quotation_of(vocabulary.tokens[end]));
}

}  // namespace

BytePairEncoder::BytePairEncoder(const BpeVocabulary& vocabulary) {
  check_vocabulary(vocabulary);
  const TokenIds ids = ids_of(vocabulary);
  add_first_tokens(vocabulary, ids);
  add_merges(vocabulary, ids);
  byte_pair_ranks_.resize(256 * 256, no_merge);
  const std::size_t bytes = character_ids_.empty() ? 256 : std::min<std::size_t>(128, character_ids_.size());
  const auto id_of = [&](std::size_t byte) { return character_ids_.empty() ? byte_ids_[byte] : character_ids_[byte]; };
  for (std::size_t left = 0; left < bytes; ++left) {
    for (std::size_t right = 0; right < bytes; ++right) {
      byte_pair_ranks_[left * 256 + right] = rank_of(id_of(left), id_of(right));
    }
  }
  add_words(vocabulary);
}

void BytePairEncoder::add_first_tokens(const BpeVocabulary& vocabulary, const TokenIds& ids) {
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const std::string name = vocabulary.characters ? byte_token(byte) : std::string(1, static_cast<char>(byte));
    const auto found = ids.find(name);
    TRIREME_CHECK(found != ids.end(), DataError, "the vocabulary has no token for the single byte {}", byte);
    byte_ids_[byte] = found->second;
  }
  if (!vocabulary.characters) return;
  const std::vector<bool> is_special = special_ids(vocabulary);
  character_ids_.resize(1, -1);
  for (const auto& [token, id] : ids) {
    const Utf8Character c = decode_utf8(token.data(), token.data() + token.size());
    if (c.size_bytes == 0 || static_cast<std::size_t>(c.size_bytes) != token.size()) continue;
    if (is_special[static_cast<std::size_t>(id)]) continue;
    if (c.code_point >= character_ids_.size()) character_ids_.resize(c.code_point + 1, -1);
    character_ids_[c.code_point] = id;
  }
}

void BytePairEncoder::add_merges(const BpeVocabulary& vocabulary, const TokenIds& ids) {
  const bool by_characters = vocabulary.characters.has_value();
  std::vector<bool> made(vocabulary.tokens.size());     // by id: a byte or the result of a merge
  std::vector<bool> is_byte(vocabulary.tokens.size());  // by id
  for (const std::int32_t id : byte_ids_) {
    made[static_cast<std::size_t>(id)] = is_byte[static_cast<std::size_t>(id)] = true;
  }
  const std::vector<bool> is_special = special_ids(vocabulary);
  merge_filter_ = HashFilter(vocabulary.merges.size());
  merge_slots_.resize(table_size(vocabulary.merges.size()));
  merge_shift_ = 64 - std::countr_zero(merge_slots_.size());
  for (std::size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const auto& [left, right] = vocabulary.merges[rank];
    const auto id_of = [&](const std::string& bytes) {
      const auto found = ids.find(bytes);
      TRIREME_CHECK(found != ids.end(), DataError, "merge {} ('{}' + '{}'): '{}' is not in the vocabulary", rank + 1,
                    quotation_of(left), quotation_of(right), quotation_of(bytes));
      TRIREME_CHECK(!by_characters || !is_byte[static_cast<std::size_t>(found->second)], DataError,
                    "merge {} ('{}' + '{}') has or makes the token '{}' of a byte", rank + 1, quotation_of(left),
                    quotation_of(right), quotation_of(bytes));
      return found->second;
    };
    const std::int32_t left_id = id_of(left);
    const std::int32_t right_id = id_of(right);
    const std::int32_t merged_id = id_of(left + right);
    merges_.emplace_back(left_id, right_id);
    merged_.push_back(merged_id);
    if (by_characters && is_special[static_cast<std::size_t>(merged_id)]) continue;
    MergeSlot& slot = merge_slots_[merge_slot(left_id, right_id)];
    TRIREME_CHECK(slot.left < 0, DataError, "merge {} ('{}' + '{}') repeats merge {}", rank + 1, quotation_of(left),
                  quotation_of(right), slot.rank + 1);
    slot = {left_id, right_id, static_cast<std::uint32_t>(rank)};
    merge_filter_.add(merge_hash(left_id, right_id));
    made[static_cast<std::size_t>(merged_id)] = true;
  }
  // Merges of SentencePiece's pieces include some that never apply.
  if (!by_characters) check_merges(vocabulary, merges_, made);
}

/// Most words of ordinary text are one token. One look-up finds them, without merging. Unless the vocabulary has
/// `whole_words`, only tokens reachable by merging are entered, so the result is the same.
void BytePairEncoder::add_words(const BpeVocabulary& vocabulary) {
  words_ = WordTable(vocabulary.tokens.size());
  const bool by_marks =
      !vocabulary.characters || (vocabulary.characters->metaspace && vocabulary.characters->metaspace->split);
  const bool whole_words = vocabulary.whole_words && by_marks;
  const std::vector<bool> is_added = added_ids(vocabulary);
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const std::string& token = vocabulary.tokens[i];
    const auto id = static_cast<std::int32_t>(i);
    if (whole_words) {
      if (is_added[i]) continue;
    } else {
      if (token.size() > WordKey::max_bytes) continue;
      ids.clear();
      encode_short(token.data(), token.size(), ids);
      if (ids.size() != 1 || ids[0] != id) continue;
    }
    words_.insert(token, id);
  }
}

inline std::uint64_t BytePairEncoder::merge_hash(std::int32_t left, std::int32_t right) {
  const std::uint64_t pair = static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
  return (pair ^ pair >> 29) * golden_ratio;
}

inline std::size_t BytePairEncoder::merge_slot(std::int32_t left, std::int32_t right) const {
  std::size_t slot = merge_hash(left, right) >> merge_shift_;
  while (merge_slots_[slot].left >= 0 && (merge_slots_[slot].left != left || merge_slots_[slot].right != right)) {
    slot = (slot + 1) & (merge_slots_.size() - 1);
  }
  return slot;
}

inline std::uint32_t BytePairEncoder::rank_of(std::int32_t left, std::int32_t right) const {
  if (!merge_filter_.may_have(merge_hash(left, right))) return no_merge;
  const MergeSlot& slot = merge_slots_[merge_slot(left, right)];
  return slot.left >= 0 ? slot.rank : no_merge;
}

void BytePairEncoder::encode(Word word, const char* text_end, std::vector<std::int32_t>& ids) const {
  if (const std::int32_t id = words_.find(word, text_end); id >= 0) {
    ids.push_back(id);
  } else if (word.size() <= max_short_word_bytes) {
    encode_short(word.begin, word.size(), ids);
  } else {
    encode_long(word.begin, word.size(), ids);
  }
}

/// Sets the tokens that a word starts from, and their ranks: that of each with the next, if it has one. Returns their
/// number, at most `size`.
inline std::size_t BytePairEncoder::first_tokens(const char* word, std::size_t size, std::int32_t* tokens,
                                                 std::uint32_t* ranks) const {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(word[i]); };
  if (character_ids_.empty()) {
    for (std::size_t i = 0; i < size; ++i) tokens[i] = byte_ids_[byte(i)];
    for (std::size_t i = 0; i + 1 < size; ++i) ranks[i] = byte_pair_ranks_[byte(i) * 256u + byte(i + 1)];
    return size;
  }
  std::size_t count = 0;
  for (std::size_t at = 0; at < size;) {
    const Utf8Character c = decode_utf8(word + at, word + size);
    const bool has_token =
        c.size_bytes > 0 && c.code_point < character_ids_.size() && character_ids_[c.code_point] >= 0;
    const std::size_t end = at + static_cast<std::size_t>(std::max(c.size_bytes, 1));
    for (std::size_t i = at; !has_token && i < end; ++i) tokens[count++] = byte_ids_[byte(i)];
    if (has_token) tokens[count++] = character_ids_[c.code_point];
    at = end;
  }
  for (std::size_t i = 0; i + 1 < count; ++i) {
    const bool is_ascii = count == size && byte(i) < 0x80 && byte(i + 1) < 0x80;
    ranks[i] = is_ascii ? byte_pair_ranks_[byte(i) * 256u + byte(i + 1)] : rank_of(tokens[i], tokens[i + 1]);
  }
  return count;
}

void BytePairEncoder::encode_short(const char* word, std::size_t size, std::vector<std::int32_t>& ids) const {
  std::array<std::int32_t, max_short_word_bytes> tokens;
  std::array<std::uint32_t, max_short_word_bytes> ranks;  // rank of token i with the next
  std::size_t count = first_tokens(word, size, tokens.data(), ranks.data());
  while (count > 1) {
    std::uint32_t least = no_merge;
    for (std::size_t i = 0; i + 1 < count; ++i) least = std::min(least, ranks[i]);
    if (least == no_merge) break;
    std::size_t best = 0;
    while (ranks[best] != least) ++best;
    tokens[best] = merged_[ranks[best]];
    --count;
    for (std::size_t i = best + 1; i < count; ++i) {
      tokens[i] = tokens[i + 1];
      ranks[i] = ranks[i + 1];
    }
    if (best + 1 < count) ranks[best] = rank_of(tokens[best], tokens[best + 1]);
    if (best > 0) ranks[best - 1] = rank_of(tokens[best - 1], tokens[best]);
  }
  ids.insert(ids.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
}

/// Encodes a long word through a linked list and a heap of pairs, with the result of encode_short. Stale heap entries
/// are dropped at the top.
void BytePairEncoder::encode_long(const char* word, std::size_t size, std::vector<std::int32_t>& ids) const {
  struct Node {
    std::int32_t id;
    std::uint32_t rank;  // rank of this token with the next
    std::size_t previous, next;
  };
  std::vector<std::int32_t> tokens(size);
  std::vector<std::uint32_t> ranks(size, no_merge);
  const std::size_t count = first_tokens(word, size, tokens.data(), ranks.data());
  std::vector<Node> nodes(count);
  std::vector<std::uint64_t> entries;
  const auto entry_of = [&](std::size_t i) { return std::uint64_t{nodes[i].rank} << position_bits | i; };
  for (std::size_t i = 0; i < count; ++i) {
    nodes[i] = {tokens[i], i + 1 < count ? ranks[i] : no_merge, i - 1, i + 1};
    if (nodes[i].rank != no_merge) entries.push_back(entry_of(i));
  }
  std::priority_queue heap(std::greater<>{}, std::move(entries));
  const auto update = [&](std::size_t i) {
    const std::size_t next = nodes[i].next;
    nodes[i].rank = next < count ? rank_of(nodes[i].id, nodes[next].id) : no_merge;
    if (nodes[i].rank != no_merge) heap.push(entry_of(i));
  };
  while (!heap.empty()) {
    const std::uint64_t entry = heap.top();
    heap.pop();
    const std::size_t i = entry & ((std::uint64_t{1} << position_bits) - 1);
    if (nodes[i].rank != entry >> position_bits) continue;
    const std::size_t gone = nodes[i].next;
    nodes[i].id = merged_[nodes[i].rank];
    nodes[i].next = nodes[gone].next;
    nodes[gone].rank = no_merge;
    if (nodes[i].next < count) nodes[nodes[i].next].previous = i;
    update(i);
    if (i > 0) update(nodes[i].previous);
  }
  for (std::size_t i = 0; i < count; i = nodes[i].next) ids.push_back(nodes[i].id);
}

}  // namespace trireme::data
