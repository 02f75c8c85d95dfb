#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/data/dataset/sample_source.hpp"

namespace trireme::data {

/// Shifts s + 1 tokens of text into inputs and labels of s positions: tokens[i] = text[i], labels[i] = text[i + 1].
/// Negative tokens end a text early: inputs are 0 there, and labels stay negative, so nothing is predicted.
void make_next_token_labels(std::span<const std::int32_t> text, const SampleView& sample);

/// Labels of the last tokens of documents, after which another document begins.
enum class DocumentEnds { labelled, unlabelled };

/// Writes the optional fields of running text in which documents begin at `starts`, ascending from 1 to s: positions
/// and first_visible count from the start of each token's document. Unlabelled ends lose their labels.
void mark_documents(std::span<const std::int64_t> starts, DocumentEnds ends, const SampleView& sample);

/// Samples of running text, each position labelled with the next token.
class NextTokenSamples : public SampleSource {
 public:
  explicit NextTokenSamples(DocumentEnds ends = DocumentEnds::labelled) : ends_(ends) {}
  SampleFields fields() const override { return {.positions = true, .first_visible = true}; }
  /// Throws DataError for an `index` out of range, ShapeError for a `sample` of another length.
  void read(std::int64_t index, const SampleView& sample) const final;
  /// Writes the sequence_length() + 1 tokens of sample `index`; see make_next_token_labels for text that ends early.
  virtual void read_text(std::int64_t index, std::span<std::int32_t> text) const = 0;
  /// Returns the places in the text of sample `index`, ascending from 1 on, at which another document begins.
  virtual std::vector<std::int64_t> document_starts(std::int64_t) const { return {}; }

 private:
  DocumentEnds ends_;
};

}  // namespace trireme::data
