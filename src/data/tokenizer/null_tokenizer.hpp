#pragma once

#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::data {

/// Ids that were made elsewhere: its text is the ids in decimal, separated by white space.
class NullTokenizer final : public Tokenizer {
 public:
  /// Ids 0 to vocabulary_size - 1, one of which ends documents. ConfigError if it is not one of them.
  NullTokenizer(std::int64_t vocabulary_size, std::int64_t end_of_document);

  const std::string& name() const override { return name_; }
  std::int64_t vocabulary_size() const override { return vocabulary_size_; }
  std::int32_t end_of_document() const override { return end_of_document_; }
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override;
  void decode(std::span<const std::int32_t> ids, std::string& bytes) const override;
  std::string payload() const override;
  /// The inverse of `payload`. Throws DataError.
  static std::unique_ptr<Tokenizer> from_payload(const std::string& payload);

 private:
  std::string name_ = "null";
  std::int64_t vocabulary_size_;
  std::int32_t end_of_document_;
};

}  // namespace trireme::data
