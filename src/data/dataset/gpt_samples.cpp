#include "src/data/dataset/gpt_samples.hpp"

#include <algorithm>
#include <utility>

#include "src/base/check.hpp"

namespace trireme::data {
namespace {

void check_request(const SampleSource& source, std::int64_t index, std::span<std::int32_t> tokens) {
  TRIREME_CHECK(index >= 0 && index < source.size(), DataError, "sample {} asked for, but there are {}", index,
                source.size());
  TRIREME_CHECK(static_cast<std::int64_t>(tokens.size()) == source.sample_length(), ShapeError,
                "a sample has {} tokens, room for {} given", source.sample_length(), tokens.size());
}

}  // namespace

CheckedTokens::CheckedTokens(std::shared_ptr<const TokenStore> store, std::int64_t vocabulary_size)
    : store_(std::move(store)), vocabulary_size_(vocabulary_size) {}

SequentialSamples::SequentialSamples(CheckedTokens tokens, std::int64_t sequence_length)
    : tokens_(std::move(tokens)),
      sequence_length_(sequence_length),
      size_(std::max<std::int64_t>(tokens_.store().token_count() - 1, 0) / sequence_length) {}

void SequentialSamples::read(std::int64_t index, std::span<std::int32_t> tokens) const {
  check_request(*this, index, tokens);
  tokens_.read(index * sequence_length_, tokens);
}

ShuffledSamples::ShuffledSamples(CheckedTokens tokens, const DocumentRange& range, std::int64_t sequence_length,
                                 std::span<const std::int64_t> budgets, std::uint32_t seed, IndexCache* cache)
    : tokens_(std::move(tokens)), range_(range), sequence_length_(sequence_length) {
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

void ShuffledSamples::read(std::int64_t index, std::span<std::int32_t> tokens) const {
  check_request(*this, index, tokens);
  const auto which = std::upper_bound(firsts_.begin(), firsts_.end(), index) - firsts_.begin() - 1;
  const GptIndex& order = indices_[static_cast<std::size_t>(which)];
  auto [entry, offset] = order.position(order.shuffled(index - firsts_[static_cast<std::size_t>(which)]));
  const auto documents = order.document_order();
  // The order and where documents begin may be mapped from files: neither is trusted to be what it was.
  const auto check = [&](bool is_good) {
    TRIREME_CHECK(is_good, DataError,
                  "{} or the order of its samples, in the folder index-cache, was changed while it was read: put the "
                  "corpus back as it was, delete that folder and run again",
                  tokens_.store().name());
  };
  while (!tokens.empty()) {
    check(entry >= 0 && entry < std::ssize(documents));
    const std::uint32_t document = documents[static_cast<std::size_t>(entry)];
    check(document < range_.documents);
    const std::int64_t begin = range_.begin(document) + offset;
    const std::int64_t left = range_.end(document) - begin;
    check(left >= 0);
    const auto count = std::min(tokens.size(), static_cast<std::size_t>(left));
    tokens_.read(begin, tokens.first(count));
    tokens = tokens.subspan(count);
    ++entry;
    offset = 0;
  }
}

}  // namespace trireme::data
