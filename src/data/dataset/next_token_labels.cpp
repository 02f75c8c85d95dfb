#include "src/data/dataset/next_token_labels.hpp"

#include <algorithm>
#include <vector>

#include "src/base/check.hpp"

namespace trireme::data {

void make_next_token_labels(std::span<const std::int32_t> text, const SampleView& sample) {
  TRIREME_CHECK(text.size() == sample.tokens.size() + 1 && text.size() == sample.labels.size() + 1, ShapeError,
                "{} tokens of text do not make {} inputs and {} labels: one token more is needed", text.size(),
                sample.tokens.size(), sample.labels.size());
  std::ranges::transform(text.first(text.size() - 1), sample.tokens.begin(),
                         [](std::int32_t token) { return std::max(token, 0); });
  std::ranges::copy(text.subspan(1), sample.labels.begin());
}

void mark_documents(std::span<const std::int64_t> starts, DocumentEnds ends, const SampleView& sample) {
  auto next = starts.begin();
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < std::ssize(sample.tokens); ++i) {
    for (; next != starts.end() && *next <= i; ++next) begin = *next;
    const auto position = static_cast<std::size_t>(i);
    if (!sample.positions.empty()) sample.positions[position] = static_cast<std::int32_t>(i - begin);
    if (!sample.first_visible.empty()) sample.first_visible[position] = static_cast<std::int32_t>(begin);
  }
  if (ends == DocumentEnds::labelled) return;
  for (const std::int64_t start : starts) sample.labels[static_cast<std::size_t>(start - 1)] = -1;
}

void NextTokenSamples::read(std::int64_t index, const SampleView& sample) const {
  TRIREME_CHECK(index >= 0 && index < size(), DataError, "reading sample {} failed: there are {}", index, size());
  std::vector<std::int32_t> text(static_cast<std::size_t>(sequence_length()) + 1);
  read_text(index, text);
  make_next_token_labels(text, sample);
  const auto end = std::ranges::find_if(text.begin(), text.end() - 1, [](std::int32_t token) { return token < 0; });
  std::ranges::fill(sample.length, static_cast<std::int32_t>(end - text.begin()));
  const bool has_fields = !sample.positions.empty() || !sample.first_visible.empty();
  if (has_fields || ends_ == DocumentEnds::unlabelled) mark_documents(document_starts(index), ends_, sample);
}

}  // namespace trireme::data
