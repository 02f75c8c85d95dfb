#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace trireme::data {

/// Tokens in place, 16 or 32 bits each: mapped memory, not a copy.
using TokenSpan = std::variant<std::span<const std::uint16_t>, std::span<const std::uint32_t>>;

/// Header of a corpus.
struct CorpusInfo {
  std::string tokenizer;          ///< "bytes", "gpt2" ...
  std::string tokenizer_digest;   ///< digest of the payload
  std::string ids_digest = {};    ///< equal digests give the same ids to a text, whatever the special tokens
  std::string tokenizer_payload;  ///< the tokenizer itself, which makes the corpus self-contained for decoding
  std::string content_digest;     ///< changes with the tokens, the document and the sentence offsets
  std::int64_t vocabulary_size = 0;
  std::int64_t end_of_document = -1;  ///< id of the token that ends documents, -1 if none
  std::int64_t max_id = -1;           ///< greatest id among the tokens, -1 in an empty corpus
};

/// Tokens [begin, end) of a corpus whose prediction counts in the loss, such as the words of an assistant.
struct LearnedRange {
  std::int64_t begin = 0, end = 0;
  bool operator==(const LearnedRange&) const = default;
};

/// A tokenized corpus: documents one after another in one array of tokens.
class TokenStore {
 public:
  virtual ~TokenStore() = default;
  /// For messages: the file's path, or "memory".
  virtual const std::string& name() const = 0;
  virtual const CorpusInfo& info() const = 0;
  /// Document d is tokens [offsets[d], offsets[d + 1]); one more entry than documents, from 0 to the number of tokens.
  virtual std::span<const std::int64_t> document_offsets() const = 0;
  /// Sentence i is tokens [offsets[i], offsets[i + 1]), from 0 to the number of tokens; every document begins with one.
  /// Empty if the corpus was built without sentences.
  virtual std::span<const std::int64_t> sentence_offsets() const { return {}; }
  /// The learned tokens of a corpus of conversations: ranges that ascend and do not overlap. Without a value all tokens
  /// are learned.
  virtual std::optional<std::span<const LearnedRange>> learned_ranges() const { return std::nullopt; }
  /// Returns the contiguous prefix of tokens [first, first + count): at least one if `count` is not 0, and in most
  /// corpora all. Valid for the store's lifetime.
  virtual TokenSpan tokens(std::int64_t first, std::int64_t count) const = 0;
  /// Throws DataError if the store's files have changed since it was opened: tokens read since may be wrong.
  virtual void check_unchanged() const {}

  std::int64_t documents() const { return static_cast<std::int64_t>(document_offsets().size()) - 1; }
  std::int64_t token_count() const { return document_offsets().back(); }
};

/// Calls `take(span, begin)` with all tokens [first, first + count) of `store`, span by span; `begin` counts from
/// `first`.
template <class Take>
void read_tokens(const TokenStore& store, std::int64_t first, std::int64_t count, const Take& take) {
  for (std::int64_t begin = 0; begin < count;) {
    const auto take_span = [&](const auto& span) {
      take(span, begin);
      begin += static_cast<std::int64_t>(span.size());
    };
    std::visit(take_span, store.tokens(first + begin, count - begin));
  }
}

/// Calls `visit(LearnedRange)` for the parts of `ranges` within tokens [begin, end), in their order.
template <class Visit>
void for_each_learned(std::span<const LearnedRange> ranges, std::int64_t begin, std::int64_t end, const Visit& visit) {
  auto range = std::ranges::upper_bound(ranges, begin, {}, &LearnedRange::end);
  for (; range != ranges.end() && range->begin < end; ++range) {
    visit(LearnedRange{std::max(range->begin, begin), std::min(range->end, end)});
  }
}

/// Number of learned tokens among [begin, end): all without ranges.
std::int64_t learned_tokens(const TokenStore& store, std::int64_t begin, std::int64_t end);

/// Tokens [first, first + count) of a span of all of them.
template <class Token>
std::span<const Token> tokens_in(std::span<const Token> all, std::int64_t first, std::int64_t count) {
  return all.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

/// Copies tokens [first, first + ids.size()). Throws DataError for one that is not below `vocabulary_size`.
void read_checked_tokens(const TokenStore& store, std::int64_t vocabulary_size, std::int64_t first,
                         std::span<std::int32_t> ids);

/// Synthetic corpus without a file, for trials and benchmarks: 10,240 documents of 1 to 4,095 tokens, 21 million tokens
/// in total. Its tokens are a function of seed and position: every block of 512 documents repeats the first one, in
/// which token i is a hash of (seed, i) mod V - 1, and V - 1 ends each document. Holds one block, 4 MiB, and the
/// document offsets in memory.
class MockStore final : public TokenStore {
 public:
  /// Takes tokenizer and vocabulary of `info`, and fills in the rest. Throws ConfigError for fewer than two ids.
  MockStore(CorpusInfo info, std::uint64_t seed);

  const std::string& name() const override { return name_; }
  const CorpusInfo& info() const override { return info_; }
  std::span<const std::int64_t> document_offsets() const override { return offsets_; }
  TokenSpan tokens(std::int64_t first, std::int64_t count) const override;

 private:
  std::string name_ = "mock data";
  CorpusInfo info_;
  std::vector<std::int64_t> offsets_{0};
  std::vector<std::uint32_t> block_;
};

}  // namespace trireme::data
