#pragma once

#include <vector>

#include "src/data/dataset/sample_source.hpp"

namespace trireme::test {

/// The s + 1 tokens of text that a sample's inputs and next-token labels were made from.
inline std::vector<std::int32_t> text_of(const data::SampleSource& source, std::int64_t index) {
  const data::SampleBuffer buffer(source.sequence_length(), {});
  source.read(index, buffer.view());
  std::vector<std::int32_t> text(buffer.view().tokens.begin(), buffer.view().tokens.end());
  text.push_back(buffer.view().labels.back());
  return text;
}

}  // namespace trireme::test
