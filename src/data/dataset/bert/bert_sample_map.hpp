#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <variant>

#include "src/data/dataset/index_cache.hpp"
#include "src/data/dataset/split.hpp"

namespace trireme::data {

/// Sentences [first_sentence, end_sentence) of a corpus, to be cut to target_length tokens.
struct BertSampleRow {
  std::int64_t first_sentence = 0, end_sentence = 0;
  std::int64_t target_length = 0;
  bool operator==(const BertSampleRow&) const = default;
};

struct BertSampleMapOptions {
  static constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();
  std::int64_t max_target_length = 0;       ///< at least 2
  double short_sequence_probability = 0.1;  ///< 0 to 1, used as 1/round(1/p)
  std::int64_t min_sentences = 2;           ///< limit of a document and a sample; 1 without the binary head
  std::int64_t max_epochs = no_limit;       ///< the map ends after this many epochs
  std::int64_t max_samples = no_limit;      ///< or after the epoch that reaches this number
  std::uint32_t seed = 1234;
};

/// Returns whether any document of `range` yields a sample. Throws DataError if `store` has no sentences.
bool has_bert_samples(const TokenStore& store, const DocumentRange& range, std::int64_t min_sentences);

/// Megatron-LM's map from documents to BERT samples.
///
/// Each epoch visits the documents in order. It skips documents of fewer than min_sentences, and those of several
/// sentences one of which exceeds 512 tokens. A sample takes sentences until it reaches its target and more than one
/// sentence is left in the document, or to the document's end. One sample of round(1/p) gets a target drawn from 2 to
/// max_target_length, the others the maximum. The samples of all epochs are shuffled together.
///
/// Takes three 32-bit integers per sample, or 64-bit if the corpus has more than 2^32 - 1 sentences. They are
/// memory-mapped from `cache` if it stores them: the map is held in memory only while it is computed.
class BertSampleMap {
 public:
  /// `range` must be of `store`. Sentences belong to the range in which they begin. Throws DataError if `store` has
  /// none.
  BertSampleMap(const TokenStore& store, const DocumentRange& range, const BertSampleMapOptions& options,
                IndexCache* cache = nullptr);

  /// Samples of all epochs: usually more than requested; 0 if no document yields one.
  std::int64_t size() const;
  BertSampleRow row(std::int64_t index) const;

 private:
  template <class Number>
  using Rows = std::span<const Number>;  // [size, 3]

  template <class Number>
  void make(const TokenStore& store, const DocumentRange& range, const BertSampleMapOptions& options,
            IndexCache* cache);
  template <class Number>
  bool take(const IndexCache::Kept& kept);

  std::shared_ptr<const void> owner_;  // owner of the rows
  std::variant<Rows<std::uint32_t>, Rows<std::uint64_t>> rows_;
};

}  // namespace trireme::data
