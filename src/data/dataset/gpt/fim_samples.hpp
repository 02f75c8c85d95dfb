#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/attributes.hpp"
#include "src/data/dataset/gpt_samples.hpp"
#include "src/data/dataset/numpy_random.hpp"

namespace trireme::data {

/// Conversion between tokens and text.
struct TextCodec {
  std::function<std::string(std::span<const std::int32_t>)> decode;
  std::function<void(std::string_view, std::vector<std::int32_t>&)> encode;  ///< appends
  std::function<bool(std::int32_t)> is_special;                              ///< never comes from text
};

/// Fill in the middle, as in StarCoder's fork of Megatron-LM.
struct FimOptions {
  double rate = 0;                                     ///< share of the documents that are rearranged
  double spm_rate = 0.5;                               ///< share of these in suffix, prefix, middle order
  std::optional<std::int32_t> split_token;             ///< splits documents into fragments, each rearranged separately
  double fragment_rate = 0;                            ///< share of the fragments, within the documents of `rate`
  std::string no_prefix;                               ///< text with this prefix is left unchanged, unless empty
  std::int32_t prefix = -1, middle = -1, suffix = -1;  ///< ids that mark the parts
  std::int32_t end_of_document = -1;
  TextCodec codec;
};

/// Throws ConfigError for an invalid rate, ids beyond `vocabulary_size`, or marks that are not distinct.
void validate(const FimOptions& options, std::int64_t vocabulary_size);

/// Attribute "data.fim" of a checkpoint: everything except the codec.
Attributes attributes_of(const FimOptions& options);

/// Returns `tokens`, a document or a part of it, in the order of one of
///   PSM: [prefix] P [suffix] S [middle] M
///   SPM: [prefix] [suffix] S [middle] P M
/// where P M S is its text, cut before two characters drawn by `random`, and each part is encoded anew. Special tokens
/// are unchanged; cuts never split a character.
std::vector<std::int32_t> rearranged(std::span<const std::int32_t> tokens, const FimOptions& options,
                                     NumpyRandom& random);

/// Samples in which the documents' parts are rearranged (Bavarian et al. 2022, arXiv 2207.14255). A sample's draws
/// depend only on seed + its number: they are the same on every grid and in every attempt of a run. Its length is
/// fixed: tokens added by the marks are cut off at its end. It ends early if the new encoding has fewer tokens.
/// Document starts are those after the rearrangement.
class FimSamples final : public NextTokenSamples {
 public:
  FimSamples(std::unique_ptr<NextTokenSamples> samples, FimOptions options, std::int64_t seed,
             DocumentEnds ends = DocumentEnds::labelled);
  std::int64_t size() const override { return samples_->size(); }
  std::int64_t sequence_length() const override { return samples_->sequence_length(); }
  void read_text(std::int64_t index, std::span<std::int32_t> text) const override;
  std::vector<std::int64_t> document_starts(std::int64_t index) const override;
  void check_unchanged() const override { samples_->check_unchanged(); }

 private:
  /// A sample before it is cut to its length.
  struct Arrangement {
    std::vector<std::int32_t> tokens;
    std::vector<std::int64_t> starts;  ///< places of its documents but the first
  };
  Arrangement arrangement(std::int64_t index) const;

  std::unique_ptr<NextTokenSamples> samples_;
  FimOptions options_;
  std::int64_t seed_;
};

}  // namespace trireme::data
