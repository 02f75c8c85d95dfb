#include "src/data/tasks/zero_shot/scored_texts.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/base/check.hpp"

namespace trireme::data {

std::int64_t ScoredTexts::append_ids(std::span<const std::int32_t> ids) {
  const std::int64_t begin = std::ssize(ids_);
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  return begin;
}

void ScoredTexts::add(std::int64_t begin, std::int64_t count, std::int64_t scored) {
  TRIREME_CHECK(begin >= 0 && count >= 1 && begin + count <= std::ssize(ids_) && scored >= 0 && scored < count,
                ShapeError, "{} scored tokens of {} at {} of {}", scored, count, begin, ids_.size());
  texts_.push_back({begin, count, scored});
  scored_ += scored;
  max_length_ = std::max(max_length_, count - 1);
}

std::span<const std::int32_t> ScoredTexts::ids(std::int64_t index) const {
  const Text& found = text(index);
  return std::span(ids_).subspan(static_cast<std::size_t>(found.begin), static_cast<std::size_t>(found.count));
}

void ScoredTexts::read(std::int64_t index, const SampleView& sample) const {
  const std::span<const std::int32_t> text = ids(index);
  const auto length = static_cast<std::size_t>(this->length(index));
  const std::size_t first_scored = length - static_cast<std::size_t>(scored(index));
  TRIREME_CHECK(length <= sample.tokens.size(), ShapeError, "a text of {} tokens in a sample of {}", length,
                sample.tokens.size());
  std::ranges::copy(text.first(length), sample.tokens.begin());
  std::ranges::fill(sample.tokens.subspan(length), padding_);
  std::ranges::fill(sample.length, static_cast<std::int32_t>(length));
  std::ranges::fill(sample.labels, -1);
  std::ranges::copy(text.subspan(first_scored + 1), sample.labels.begin() + static_cast<std::ptrdiff_t>(first_scored));
}

void fit(const LengthLimit& limit, std::int64_t scored, std::vector<std::int32_t>& ids) {
  const std::int64_t excess = std::ssize(ids) - 1 - limit.max_length;
  if (excess <= 0) return;
  TRIREME_CHECK(limit.cut, DataError,
                "the text has {} tokens to read, and the model reads {}. Try <long_examples> cut, which leaves out the "
                "beginning of such texts",
                std::ssize(ids) - 1, limit.max_length);
  TRIREME_CHECK(scored <= limit.max_length, DataError,
                "{} tokens are to be predicted, more than the {} the model reads", scored, limit.max_length);
  ids.erase(ids.begin(), ids.begin() + excess);
}

Mean Mean::of(double sum, double sum_of_squares, std::int64_t n) {
  const auto count = static_cast<double>(n);
  const double mean = sum / count;
  if (n < 2) return {mean, std::numeric_limits<double>::quiet_NaN()};
  const double variance = std::max(0.0, sum_of_squares - sum * mean) / (count - 1);
  return {mean, std::sqrt(variance / count)};
}

TextScore total(std::span<const TextScore> scores) {
  TextScore sum;
  for (const TextScore& score : scores) {
    sum.loss += score.loss;
    sum.squared_loss += score.squared_loss;
    sum.wrong += score.wrong;
  }
  return sum;
}

}  // namespace trireme::data
