#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "src/data/dataset/token_store.hpp"

namespace trireme::data {

/// A corpus in memory: ids of 16 bits where the vocabulary allows it, else of 32.
class MemoryTokenStore final : public TokenStore {
 public:
  /// Fills in the greatest id and the content digest of `info`; the rest is the caller's. Throws DataError for an id
  /// that is not in the vocabulary of `info.vocabulary_size` ids. Without `sentence_offsets` there are no sentences.
  MemoryTokenStore(CorpusInfo info, const std::vector<std::vector<std::int32_t>>& documents,
                   std::vector<std::int64_t> sentence_offsets = {});
  /// Without a tokenizer.
  MemoryTokenStore(std::int64_t vocabulary_size, const std::vector<std::vector<std::int32_t>>& documents)
      : MemoryTokenStore(info_of(vocabulary_size), documents) {}

  const std::string& name() const override { return name_; }
  const CorpusInfo& info() const override { return info_; }
  std::span<const std::int64_t> document_offsets() const override { return offsets_; }
  std::span<const std::int64_t> sentence_offsets() const override { return sentence_offsets_; }
  TokenSpan tokens(std::int64_t first, std::int64_t count) const override;

 private:
  static CorpusInfo info_of(std::int64_t vocabulary_size) {
    CorpusInfo info;
    info.vocabulary_size = vocabulary_size;
    return info;
  }

  std::string name_ = "memory";
  CorpusInfo info_;
  std::vector<std::int64_t> offsets_{0};
  std::vector<std::int64_t> sentence_offsets_;
  std::variant<std::vector<std::uint16_t>, std::vector<std::uint32_t>> tokens_;
};

}  // namespace trireme::data
