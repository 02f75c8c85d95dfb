#include "src/data/gpt_index.hpp"

#include <algorithm>
#include <numeric>

#include "src/base/check.hpp"
#include "src/data/numpy_random.hpp"

namespace trireme::data {

GptIndex::GptIndex(const DocumentRange& range, std::int64_t sequence_length, std::int64_t samples, std::uint32_t seed)
    : sequence_length_(sequence_length) {
  const std::int64_t tokens = range.tokens();
  std::int64_t tokens_needed = 0;
  TRIREME_CHECK(!__builtin_mul_overflow(samples, sequence_length, &tokens_needed) && tokens_needed < INT64_MAX - tokens,
                ConfigError, "{} samples of {} tokens are more tokens than can be counted", samples, sequence_length);
  TRIREME_CHECK(range.documents <= UINT32_MAX, DataError, "{} documents are more than an index can number",
                range.documents);
  epochs_ = (tokens_needed + tokens) / tokens;  // least e with (e·tokens - 1) / s >= samples
  const auto samples_in = [&](std::int64_t epochs) { return (epochs * tokens - 1) / sequence_length; };
  const std::int64_t before_last = epochs_ > 1 ? samples_in(epochs_ - 1) : 0;
  const bool last_apart =
      epochs_ > 1 && samples - before_last < static_cast<std::int64_t>(0.80 * static_cast<double>(samples_in(1)));

  NumpyRandom random(seed);
  const auto shuffle_parts = [&](auto& items, std::int64_t last_part) {
    const std::span all(items);
    const auto cut = last_apart ? static_cast<std::size_t>(last_part) : items.size();
    random.shuffle(all.first(cut));
    random.shuffle(all.subspan(cut));
  };

  const auto documents = static_cast<std::size_t>(range.documents);
  document_order_.resize(static_cast<std::size_t>(epochs_) * documents);
  for (auto epoch = document_order_.begin(); epoch != document_order_.end();) {
    const auto next = epoch + range.documents;
    std::iota(epoch, next, 0u);
    epoch = next;
  }
  shuffle_parts(document_order_, (epochs_ - 1) * range.documents);

  starts_.reserve(document_order_.size());
  std::int64_t start = 0;
  for (const std::uint32_t document : document_order_) {
    starts_.push_back(start);
    start += range.end(document) - range.begin(document);
  }

  const std::int64_t size = samples_in(epochs_);
  if (size > UINT32_MAX) shuffle_.emplace<std::vector<std::uint64_t>>();
  const auto fill = [&](auto& order) {
    order.resize(static_cast<std::size_t>(size));
    std::iota(order.begin(), order.end(), 0u);
    shuffle_parts(order, before_last);
  };
  std::visit(fill, shuffle_);
}

std::int64_t GptIndex::size() const {
  return std::visit([](const auto& order) { return static_cast<std::int64_t>(order.size()); }, shuffle_);
}

std::int64_t GptIndex::shuffled(std::int64_t index) const {
  const auto at = [&](const auto& order) { return static_cast<std::int64_t>(order[static_cast<std::size_t>(index)]); };
  return std::visit(at, shuffle_);
}

GptIndex::Position GptIndex::position(std::int64_t sample) const {
  const std::int64_t token = sample * sequence_length_;
  const auto entry = std::upper_bound(starts_.begin(), starts_.end(), token) - 1;
  return {entry - starts_.begin(), token - *entry};
}

}  // namespace trireme::data
