#include "src/data/dedup/ngrams.hpp"

#include <algorithm>

#include "src/base/check.hpp"
#include "src/base/utf8.hpp"

namespace trireme::data {
namespace {

constexpr std::uint64_t factor = 0x9E3779B97F4A7C15u;

bool ends_sentence(char c) { return c == '.' || c == '!' || c == '?'; }

/// Moves back `margin` characters from `at`, then on to just after a sentence end.
std::size_t cut_before(std::string_view text, std::size_t at, std::int64_t margin) {
  for (; at > 0 && margin > 0; margin -= continues_character(text[at]) ? 0 : 1) --at;
  while (at > 0 && !ends_sentence(text[at - 1])) --at;
  return at;
}

/// Moves `margin` characters past `at`, then on to just after a sentence end.
std::size_t cut_after(std::string_view text, std::size_t at, std::int64_t margin) {
  at = skip_characters(text, at, margin);
  while (at < text.size() && !ends_sentence(text[at - 1])) ++at;
  return at;
}

}  // namespace

NgramReader::NgramReader(std::string_view text, int n)
    : words_(text), hashes_(static_cast<std::size_t>(n)), begins_(static_cast<std::size_t>(n)) {
  TRIREME_CHECK(n > 0, ConfigError, "n-grams of {} words", n);
  for (int i = 0; i < n; ++i) oldest_factor_ *= factor;
  while (count_ + 1 < begins_.size() && words_.next()) add_word();
}

void NgramReader::add_word() {
  const std::size_t slot = count_++ % begins_.size();
  const std::uint64_t hash = hash64(words_.word().data(), words_.word().size(), 0);
  sum_ = sum_ * factor + hash - hashes_[slot] * oldest_factor_;
  hashes_[slot] = hash;
  begins_[slot] = words_.begin();
}

bool NgramReader::next() {
  if (!words_.next()) return false;
  add_word();
  return count_ >= begins_.size();
}

HashSet::HashSet() : slots_(1024), mask_(slots_.size() - 1) {}

void HashSet::insert(std::uint64_t hash) {
  if (hash == 0) hash = 1;
  if (static_cast<std::size_t>(size_) * 2 >= slots_.size()) grow();
  std::size_t at = hash & mask_;
  while (slots_[at] != 0 && slots_[at] != hash) at = (at + 1) & mask_;
  size_ += slots_[at] == 0 ? 1 : 0;
  slots_[at] = hash;
}

void HashSet::grow() {
  std::vector<std::uint64_t> old(slots_.size() * 2);
  old.swap(slots_);
  mask_ = slots_.size() - 1;
  size_ = 0;
  for (const std::uint64_t hash : old) {
    if (hash != 0) insert(hash);
  }
}

std::vector<TextRange> pieces_without(std::string_view text, std::span<const TextRange> passages,
                                      const RemovalOptions& options) {
  std::vector<TextRange> pieces;
  const auto add_piece = [&](std::size_t begin, std::size_t end) {
    while (begin < end && is_ascii_space(text[begin])) ++begin;
    while (begin < end && is_ascii_space(text[end - 1])) --end;
    const std::string_view piece = text.substr(begin, end - begin);
    if (begin < end && count_characters(piece) >= options.min_piece) {
      pieces.push_back({begin, end});
    }
  };
  std::int64_t cuts = 0;
  std::size_t piece_begin = 0;
  for (std::size_t i = 0; i < passages.size();) {
    const std::size_t begin = cut_before(text, passages[i].begin, options.margin);
    std::size_t end = cut_after(text, passages[i].end, options.margin);
    // A passage within a cut extends the cut.
    for (++i; i < passages.size() && passages[i].begin <= end; ++i) {
      end = std::max(end, cut_after(text, passages[i].end, options.margin));
    }
    if (begin > piece_begin) add_piece(piece_begin, begin);
    piece_begin = end;
    ++cuts;
  }
  if (cuts > options.max_cuts) return {};
  add_piece(piece_begin, text.size());
  return pieces;
}

}  // namespace trireme::data
