#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "src/base/check.hpp"
#include "src/base/hash.hpp"
#include "src/data/dataset/token_store.hpp"

namespace trireme::data {

/// A corpus in memory, with 16-bit ids if the vocabulary allows it, else 32-bit.
class MemoryTokenStore final : public TokenStore {
 public:
  /// Sets the greatest id and the content digest of `info`; the caller sets the rest. Throws DataError for an id
  /// outside the vocabulary of `info.vocabulary_size` ids.
  MemoryTokenStore(CorpusInfo info, const std::vector<std::vector<std::int32_t>>& documents,
                   std::vector<std::int64_t> sentence_offsets = {})
      : info_(std::move(info)), sentence_offsets_(std::move(sentence_offsets)) {
    if (info_.vocabulary_size > 65536) tokens_.emplace<std::vector<std::uint32_t>>();
    Digest digest;
    const auto append = [&](auto& tokens) {
      for (const auto& document : documents) {
        for (const std::int32_t id : document) {
          TRIREME_CHECK(id >= 0 && id < info_.vocabulary_size, DataError, "token {} is not in the vocabulary of {} ids",
                        id, info_.vocabulary_size);
          info_.max_id = std::max<std::int64_t>(info_.max_id, id);
          tokens.push_back(static_cast<typename std::remove_reference_t<decltype(tokens)>::value_type>(id));
        }
        offsets_.push_back(static_cast<std::int64_t>(tokens.size()));
      }
      digest.update(tokens.data(), tokens.size() * sizeof(tokens[0]));
    };
    std::visit(append, tokens_);
    digest.update(offsets_.data(), offsets_.size() * sizeof(offsets_[0]));
    digest.update(sentence_offsets_.data(), sentence_offsets_.size() * sizeof(sentence_offsets_[0]));
    info_.content_digest = digest.hex();
  }
  /// Without a tokenizer.
  MemoryTokenStore(std::int64_t vocabulary_size, const std::vector<std::vector<std::int32_t>>& documents)
      : MemoryTokenStore(info_of(vocabulary_size), documents) {}

  void set_learned_ranges(std::vector<LearnedRange> ranges) { learned_ranges_ = std::move(ranges); }

  const std::string& name() const override { return name_; }
  const CorpusInfo& info() const override { return info_; }
  std::span<const std::int64_t> document_offsets() const override { return offsets_; }
  std::span<const std::int64_t> sentence_offsets() const override { return sentence_offsets_; }
  std::optional<std::span<const LearnedRange>> learned_ranges() const override { return learned_ranges_; }
  TokenSpan tokens(std::int64_t first, std::int64_t count) const override {
    return std::visit([&](const auto& all) -> TokenSpan { return tokens_in(std::span(all), first, count); }, tokens_);
  }

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
  std::optional<std::vector<LearnedRange>> learned_ranges_;
  std::variant<std::vector<std::uint16_t>, std::vector<std::uint32_t>> tokens_;
};

}  // namespace trireme::data
