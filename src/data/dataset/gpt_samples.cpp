#include "src/data/dataset/gpt_samples.hpp"

#include <algorithm>
#include <utility>

#include "src/base/check.hpp"

namespace trireme::data {

CheckedTokens::CheckedTokens(std::shared_ptr<const TokenStore> store, std::int64_t vocabulary_size)
    : store_(std::move(store)), vocabulary_size_(vocabulary_size) {}

SequentialSamples::SequentialSamples(CheckedTokens tokens, std::int64_t sequence_length, Remainder remainder,
                                     DocumentEnds ends)
    : NextTokenSamples(ends), tokens_(std::move(tokens)), sequence_length_(sequence_length) {
  const std::int64_t labels = std::max<std::int64_t>(tokens_.store().token_count() - 1, 0);
  size_ = (labels + (remainder == Remainder::kept ? sequence_length - 1 : 0)) / sequence_length;
}

void SequentialSamples::read_text(std::int64_t index, std::span<std::int32_t> text) const {
  const std::int64_t begin = index * sequence_length_;
  const std::int64_t left = tokens_.store().token_count() - begin;
  const auto count = std::min(text.size(), static_cast<std::size_t>(left));
  tokens_.read(begin, text.first(count));
  std::ranges::fill(text.subspan(count), -1);
}

std::vector<std::int64_t> SequentialSamples::document_starts(std::int64_t index) const {
  const std::int64_t begin = index * sequence_length_;
  const std::span<const std::int64_t> offsets = tokens_.store().document_offsets();
  std::vector<std::int64_t> starts;
  auto offset = std::ranges::upper_bound(offsets, begin);
  for (; offset != offsets.end() && *offset <= begin + sequence_length_; ++offset) {
    if (*offset > begin) starts.push_back(*offset - begin);  // offsets of a file being modified may not ascend
  }
  return starts;
}

ShuffledSamples::ShuffledSamples(CheckedTokens tokens, const DocumentRange& range, std::int64_t sequence_length,
                                 std::span<const std::int64_t> budgets, std::uint32_t seed, IndexCache* cache,
                                 DocumentEnds ends)
    : NextTokenSamples(ends), tokens_(std::move(tokens)), range_(range), sequence_length_(sequence_length) {
  for (const std::int64_t budget : budgets) {
    if (budget <= size()) continue;
    const auto index_seed = static_cast<std::uint32_t>(seed + indices_.size());
    if (cache == nullptr) {
      indices_.emplace_back(range, sequence_length, budget - size(), index_seed);
    } else {
      indices_.emplace_back(range, sequence_length, budget - size(), index_seed, tokens_.store(), *cache);
    }
    firsts_.push_back(size() + indices_.back().size());
  }
}

template <class Visit>
void ShuffledSamples::for_pieces(std::int64_t index, Visit&& visit) const {
  const auto which = std::upper_bound(firsts_.begin(), firsts_.end(), index) - firsts_.begin() - 1;
  const GptIndex& order = indices_[static_cast<std::size_t>(which)];
  auto [entry, offset] = order.position(order.shuffled(index - firsts_[static_cast<std::size_t>(which)]));
  const auto documents = order.document_order();
  // The order and the document starts may be mapped files, which may change during the read.
  const auto check = [&](bool is_good) {
    TRIREME_CHECK(
        is_good, DataError,
        "{} or the order of its samples, in the folder index-cache, was changed while it was read. Try to put the "
        "corpus back as it was, to delete that folder and to run again",
        tokens_.store().name());
  };
  std::int64_t place = 0;
  while (place <= sequence_length_) {
    check(entry >= 0 && entry < std::ssize(documents));
    const std::uint32_t document = documents[static_cast<std::size_t>(entry)];
    check(document < range_.documents);
    const std::int64_t begin = range_.begin(document) + offset;
    const std::int64_t left = range_.end(document) - begin;
    check(left >= 0);
    const std::int64_t count = std::min(left, sequence_length_ + 1 - place);
    if (count > 0) visit(place, begin, count);
    place += count;
    ++entry;
    offset = 0;
  }
}

void ShuffledSamples::read_text(std::int64_t index, std::span<std::int32_t> text) const {
  for_pieces(index, [&](std::int64_t place, std::int64_t token, std::int64_t count) {
    tokens_.read(token, text.subspan(static_cast<std::size_t>(place), static_cast<std::size_t>(count)));
  });
}

std::vector<std::int64_t> ShuffledSamples::document_starts(std::int64_t index) const {
  std::vector<std::int64_t> starts;
  for_pieces(index, [&](std::int64_t place, std::int64_t, std::int64_t) {
    if (place > 0) starts.push_back(place);
  });
  return starts;
}

}  // namespace trireme::data
