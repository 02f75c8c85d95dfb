#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/data/dataset/gpt_index.hpp"
#include "src/data/dataset/sample_source.hpp"
#include "src/data/dataset/split.hpp"
#include "src/data/dataset/token_store.hpp"

namespace trireme::data {

/// Shifts s + 1 tokens of text into inputs and labels of s positions: tokens[i] = text[i], labels[i] = text[i + 1].
/// Negative tokens end a text early: inputs are 0 there, and labels stay negative, so nothing is predicted.
void make_next_token_labels(std::span<const std::int32_t> text, const SampleView& sample);

/// Makes those of `labels`, tokens of a corpus from `first` on, negative that are not in `ranges`.
void keep_learned(std::span<const LearnedRange> ranges, std::int64_t first, std::span<std::int32_t> labels);

/// Labels of the last tokens of documents, after which another document begins.
enum class DocumentEnds { labelled, unlabelled };

/// Samples of running text, each position labelled with the next token.
class NextTokenSamples : public SampleSource {
 public:
  explicit NextTokenSamples(DocumentEnds ends = DocumentEnds::labelled) : ends_(ends) {}
  SampleFields fields() const override { return {.positions = true, .first_visible = true}; }
  /// Throws DataError for an `index` out of range, ShapeError for a `sample` of another length.
  void read(std::int64_t index, const SampleView& sample) const final;
  /// Writes the sequence_length() + 1 tokens of sample `index`; see make_next_token_labels for text that ends early.
  virtual void read_text(std::int64_t index, std::span<std::int32_t> text) const = 0;
  /// Returns the places in the text of sample `index`, ascending from 1 on, at which another document begins.
  virtual std::vector<std::int64_t> document_starts(std::int64_t) const { return {}; }
  /// Makes those labels of sample `index` negative that are no learned tokens.
  virtual void unlabel(std::int64_t /*index*/, std::span<std::int32_t> /*labels*/) const {}

 private:
  DocumentEnds ends_;
};

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
  void unlabel(std::int64_t index, std::span<std::int32_t> labels) const override;
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

/// PyTorch's `randperm(count)` from a generator with this seed: a permutation of 0 ... count - 1. Throws ConfigError
/// if `count` does not fit into 32 bits.
std::vector<std::uint32_t> torch_permutation(std::int64_t count, std::int64_t seed);

/// The samples of one epoch, over and over, each time in another order, as Megatron-LM's cyclic data loader reads them
/// without data sharding: sample i is sample P[i mod n] of the n samples of the epoch, P = torch_permutation(n, i / n).
///
/// The order depends neither on the grid nor on the length of the run. Megatron-LM drops the samples at the end of an
/// epoch that do not fill a micro-batch on all data ranks; here the next epoch follows them.
class CyclicSamples final : public NextTokenSamples {
 public:
  /// `epoch` holds the samples of one epoch, at least one; `size` is the total number to read.
  CyclicSamples(std::unique_ptr<NextTokenSamples> epoch, std::int64_t size, DocumentEnds ends = DocumentEnds::labelled);
  std::int64_t size() const override { return size_; }
  std::int64_t sequence_length() const override { return epoch_->sequence_length(); }
  SampleFields fields() const override { return epoch_->fields(); }
  void read_text(std::int64_t index, std::span<std::int32_t> text) const override;
  std::vector<std::int64_t> document_starts(std::int64_t index) const override;
  void unlabel(std::int64_t index, std::span<std::int32_t> labels) const override;
  void check_unchanged() const override { epoch_->check_unchanged(); }

 private:
  /// Returns the sample of the epoch that stands at `index`.
  std::int64_t sample_at(std::int64_t index) const;

  std::unique_ptr<NextTokenSamples> epoch_;
  std::int64_t size_;
  mutable EpochOrders<std::uint32_t> orders_;
};

}  // namespace trireme::data
