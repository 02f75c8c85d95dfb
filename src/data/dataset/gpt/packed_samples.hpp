#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "src/data/dataset/gpt_samples.hpp"

namespace trireme::data {

/// Documents of a range, counted from its first, that can be packed into samples of s positions: those with a learned
/// token from their second to their token s + 1. Others would predict nothing.
std::vector<std::uint32_t> packable_documents(const TokenStore& store, const DocumentRange& range,
                                              std::int64_t sequence_length);

/// The samples of one epoch of a corpus of conversations. Each consists of entire documents, at most s + 1 tokens, and
/// padding. Only learned tokens have labels, and never the first of a document, which none before it predicts.
///
/// A document of more than s + 1 tokens loses its end. Best fit, decreasing: the longest document first, each goes to
/// the sample with the least sufficient room (Johnson et al. 1974, doi 10.1137/0203025). Documents of equal length and
/// the samples are shuffled by the seed.
class PackedSamples final : public NextTokenSamples {
 public:
  /// Logs the samples, padding, and what is left out. Throws DataError if no document can be packed.
  PackedSamples(CheckedTokens tokens, const DocumentRange& range, std::int64_t sequence_length, std::uint32_t seed);
  std::int64_t size() const override { return std::ssize(firsts_) - 1; }
  std::int64_t sequence_length() const override { return sequence_length_; }
  SampleFields fields() const override { return {.positions = true, .first_visible = true, .length = true}; }
  void read_text(std::int64_t index, std::span<std::int32_t> text) const override;
  /// The padding counts as a document.
  std::vector<std::int64_t> document_starts(std::int64_t index) const override;
  void unlabel(std::int64_t index, std::span<std::int32_t> labels) const override;
  void check_unchanged() const override { tokens_.store().check_unchanged(); }

 private:
  std::int64_t tokens_of(std::uint32_t document) const {
    return std::min(range_.end(document) - range_.begin(document), sequence_length_ + 1);
  }
  /// Calls `visit(place, token, count)` for the documents of a sample: tokens [token, token + count) of the corpus
  /// start at `place`. Returns the place after the last.
  template <class Visit>
  std::int64_t for_documents(std::int64_t index, const Visit& visit) const;
  void log_packing() const;

  CheckedTokens tokens_;
  DocumentRange range_;
  std::int64_t sequence_length_;
  std::vector<std::uint32_t> documents_;    // documents of each sample, one sample after another
  std::vector<std::int64_t> firsts_ = {0};  // index of the first document of each sample; and their number
};

}  // namespace trireme::data
