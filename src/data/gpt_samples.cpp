#include "src/data/gpt_samples.hpp"

#include <algorithm>
#include <utility>
#include <variant>

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

void CheckedTokens::read(std::int64_t first, std::span<std::int32_t> ids) const {
  read_tokens(*store_, first, std::ssize(ids), [&](const auto& tokens, std::int64_t begin) {
    std::int32_t* const to = ids.data() + begin;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      TRIREME_CHECK(tokens[i] < vocabulary_size_, DataError,
                    "{}: token {} is {}, not in the vocabulary of {} ids; the corpus is damaged", store_->name(),
                    first + begin + static_cast<std::int64_t>(i), tokens[i], vocabulary_size_);
      to[i] = static_cast<std::int32_t>(tokens[i]);
    }
  });
}

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
  while (!tokens.empty()) {
    const std::uint32_t document = order.document_order()[static_cast<std::size_t>(entry)];
    const std::int64_t begin = range_.begin(document) + offset;
    const auto count = std::min(tokens.size(), static_cast<std::size_t>(range_.end(document) - begin));
    tokens_.read(begin, tokens.first(count));
    tokens = tokens.subspan(count);
    ++entry;
    offset = 0;
  }
}

}  // namespace trireme::data
