#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/data/dataset/gpt_index.hpp"
#include "src/data/dataset/next_token_labels.hpp"
#include "src/data/dataset/split.hpp"
#include "src/data/dataset/token_store.hpp"

namespace trireme::data {

/// Tokens of one corpus, checked against the model's vocabulary.
class CheckedTokens {
 public:
  CheckedTokens(std::shared_ptr<const TokenStore> store, std::int64_t vocabulary_size);
  /// Writes the tokens from `first` on to `ids`. Throws DataError for one that is not below the vocabulary's size.
  void read(std::int64_t first, std::span<std::int32_t> ids) const {
    read_checked_tokens(*store_, vocabulary_size_, first, ids);
  }
  const TokenStore& store() const { return *store_; }

 private:
  std::shared_ptr<const TokenStore> store_;
  std::int64_t vocabulary_size_;
};

/// Use of the tokens after the last complete sample of a corpus.
enum class Remainder {
  dropped,  ///< not in any sample
  kept      ///< in an additional sample that ends early
};

/// Sample j is tokens [j·s, j·s + s + 1) of the corpus.
class SequentialSamples final : public NextTokenSamples {
 public:
  SequentialSamples(CheckedTokens tokens, std::int64_t sequence_length, Remainder remainder = Remainder::dropped,
                    DocumentEnds ends = DocumentEnds::labelled);
  std::int64_t size() const override { return size_; }
  std::int64_t sequence_length() const override { return sequence_length_; }
  SampleFields fields() const override { return {.positions = true, .first_visible = true, .length = true}; }
  void read_text(std::int64_t index, std::span<std::int32_t> text) const override;
  std::vector<std::int64_t> document_starts(std::int64_t index) const override;
  void check_unchanged() const override { tokens_.store().check_unchanged(); }

 private:
  CheckedTokens tokens_;
  std::int64_t sequence_length_;
  std::int64_t size_;
};

/// Samples of a range of documents in Megatron-LM's order.
///
/// That order depends on the number of samples that a run needs. A run resumed with a larger number must keep the
/// epochs it has begun, so indices are chained. `budgets` are the numbers needed so far, oldest first. The first index
/// is that of the first budget, to the end of its last epoch. A later budget beyond it adds an index for the missing
/// samples, shuffled from seed + 1, seed + 2 ... Budgets that earlier epochs cover add nothing. Indices are stored in
/// `cache`, if given.
class ShuffledSamples final : public NextTokenSamples {
 public:
  ShuffledSamples(CheckedTokens tokens, const DocumentRange& range, std::int64_t sequence_length,
                  std::span<const std::int64_t> budgets, std::uint32_t seed, IndexCache* cache = nullptr,
                  DocumentEnds ends = DocumentEnds::labelled);
  std::int64_t size() const override { return firsts_.back(); }
  std::int64_t sequence_length() const override { return sequence_length_; }
  void read_text(std::int64_t index, std::span<std::int32_t> text) const override;
  std::vector<std::int64_t> document_starts(std::int64_t index) const override;
  void check_unchanged() const override { tokens_.store().check_unchanged(); }

 private:
  /// Calls `visit(place, token, count)` for the documents' pieces of the sample's text: tokens [token, token + count)
  /// of the corpus start at `place`.
  template <class Visit>
  void for_pieces(std::int64_t index, Visit&& visit) const;

  CheckedTokens tokens_;
  DocumentRange range_;
  std::int64_t sequence_length_;
  std::vector<GptIndex> indices_;
  std::vector<std::int64_t> firsts_{0};  // sample of each index, and one past the last
};

}  // namespace trireme::data
