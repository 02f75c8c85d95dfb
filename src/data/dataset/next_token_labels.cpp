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

void NextTokenSamples::read(std::int64_t index, const SampleView& sample) const {
  TRIREME_CHECK(index >= 0 && index < size(), DataError, "reading sample {} failed: there are {}", index, size());
  std::vector<std::int32_t> text(static_cast<std::size_t>(sequence_length()) + 1);
  read_text(index, text);
  make_next_token_labels(text, sample);
}

}  // namespace trireme::data
