#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/byte_pair_encoder.hpp"
#include "src/data/tokenizer.hpp"
#include "src/data/word_splitter.hpp"

namespace trireme::data {

/// GPT-2's tokenizer: words by its pattern, byte-pair encoding of each.
class Gpt2Tokenizer final : public Tokenizer {
 public:
  explicit Gpt2Tokenizer(BpeVocabulary vocabulary);
  const std::string& name() const override { return name_; }
  std::int64_t vocabulary_size() const override { return static_cast<std::int64_t>(tokens_.size()); }
  std::int32_t end_of_document() const override { return end_of_document_; }
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override;
  void decode(std::span<const std::int32_t> ids, std::string& bytes) const override;
  /// Printable ASCII lines: a title; the numbers of tokens and merges and the end of document; each token, escaped; the
  /// ids of the two sides of each merge.
  std::string payload() const override;

 private:
  std::string name_ = "gpt2";
  WordSplitter splitter_;
  BytePairEncoder encoder_;
  std::vector<std::string> tokens_;
  std::int32_t end_of_document_;
};

/// The vocabulary that `Gpt2Tokenizer::payload` describes. Throws DataError naming the line that is damaged.
BpeVocabulary bpe_from_payload(std::string_view payload);

}  // namespace trireme::data
