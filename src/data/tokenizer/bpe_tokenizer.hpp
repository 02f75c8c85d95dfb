#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/tokenizer/byte_pair_encoder.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "src/data/tokenizer/word_splitter.hpp"

namespace trireme::data {

/// Byte-level byte-pair encoding: words by a pattern, the encoding of each.
class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(std::string name, BpeVocabulary vocabulary);
  std::int64_t vocabulary_size() const override { return static_cast<std::int64_t>(tokens_.size()); }
  std::int32_t end_of_document() const override { return end_of_document_; }
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override;
  void decode(std::span<const std::int32_t> ids, std::string& bytes) const override;
  /// Names of the marked tokens or, if none are marked, of those that are neither a byte nor a merge result.
  std::vector<std::string> special_spellings() const override;
  bool can_cut(std::string_view text, std::size_t at) const override { return splitter_.can_cut(text, at); }

 private:
  /// Printable ASCII lines: a title; the numbers of tokens and merges and the end of document; each token, escaped; the
  /// ids of the two sides of each merge. Tokenizers other than GPT-2's continue: pattern, normalisation and whole
  /// words; the numbers of special and added tokens; their ids.
  std::string definition() const override;
  void encode_words(std::string_view text, std::vector<std::int32_t>& ids) const;
  void encode_normalised(std::string_view text, std::vector<std::int32_t>& ids) const;

  BytePairEncoder encoder_;
  std::vector<std::string> tokens_;
  std::int32_t end_of_document_;
  WordSplitter splitter_;
  bool compose_, whole_words_;
  std::vector<std::int32_t> special_, added_;
  std::array<std::vector<std::int32_t>, 256> added_by_byte_;  // the longest first
};

/// The vocabulary that a payload of a `BpeTokenizer` describes. Throws DataError naming the line that is damaged.
BpeVocabulary bpe_from_payload(std::string_view payload);

}  // namespace trireme::data
