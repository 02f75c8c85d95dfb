#pragma once

#include <cstdint>
#include <span>

#include "src/data/dataset/sample_source.hpp"

namespace trireme::data {

/// Shifts s + 1 tokens of text into inputs and labels of s positions: tokens[i] = text[i], labels[i] = text[i + 1].
/// Text may end early by negative tokens: inputs are 0 there, and labels stay negative, so nothing is predicted.
void make_next_token_labels(std::span<const std::int32_t> text, const SampleView& sample);

/// Samples of running text, each position labelled with the next token.
class NextTokenSamples : public SampleSource {
 public:
  /// Throws DataError for an `index` that is not a sample's, ShapeError for a `sample` of another length.
  void read(std::int64_t index, const SampleView& sample) const final;
  /// Writes the sequence_length() + 1 tokens of sample `index`; see make_next_token_labels for text that ends early.
  virtual void read_text(std::int64_t index, std::span<std::int32_t> text) const = 0;
};

}  // namespace trireme::data
