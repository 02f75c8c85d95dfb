#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <variant>

#include "src/data/dataset/index_cache.hpp"
#include "src/data/dataset/split.hpp"

namespace trireme::data {

/// The order in which Megatron-LM's GPT dataset reads documents, for at least a given number of samples of
/// sequence_length + 1 tokens.
///
/// The epochs (copies of all documents) needed for the samples are shuffled together and concatenated; sample j of that
/// stream is its tokens [j·s, j·s + s + 1), so two neighbours share a token; then the samples are shuffled. If less
/// than 80 % of the last epoch is needed, it is excluded from both shuffles and shuffled separately, so its samples
/// come last. NumPy's generator is used for the documents first, then for the samples. The order thus depends on the
/// number of samples requested.
class GptIndex {
 public:
  /// Requires at least sequence_length + 1 tokens in `range` and `samples` >= 1. With a cache the order is stored in or
  /// loaded from it; `range` must then be of `store`.
  GptIndex(const DocumentRange& range, std::int64_t sequence_length, std::int64_t samples, std::uint32_t seed,
           const TokenStore* store = nullptr, IndexCache* cache = nullptr);

  /// Samples of all epochs: usually more than requested.
  std::int64_t size() const { return plan_.size; }
  std::int64_t epochs() const { return plan_.epochs; }
  /// Number in the stream of the sample that is read as sample `index`.
  std::int64_t shuffled(std::int64_t index) const;
  /// Document of each entry of the stream, counted from the range's first.
  std::span<const std::uint32_t> document_order() const { return document_order_; }

  struct Position {
    std::int64_t entry;   ///< index in document_order
    std::int64_t offset;  ///< token in that document
  };
  /// Start of the stream's sample `sample`; for size() the end of the last one. Entry -1 for other samples.
  Position position(std::int64_t sample) const;

 private:
  /// Number of epochs, and the samples that are shuffled together.
  struct Plan {
    std::int64_t epochs = 0;
    std::int64_t size = 0;           ///< samples of all epochs
    std::int64_t apart = 0;          ///< first sample of a last epoch that is kept apart; size if none
    std::int64_t entries = 0;        ///< documents of all epochs
    std::int64_t entries_apart = 0;  ///< first document of a last epoch that is kept apart; entries if none
  };
  static Plan plan_of(const DocumentRange& range, std::int64_t sequence_length, std::int64_t samples);
  void build(const DocumentRange& range, std::uint32_t seed);
  void compute(const DocumentRange& range, std::uint32_t seed);
  bool take(const IndexCache::Kept& kept);

  std::int64_t sequence_length_;
  Plan plan_;
  std::shared_ptr<const void> owner_;  // owner of the arrays below
  std::span<const std::uint32_t> document_order_;
  std::span<const std::int64_t> starts_;  // in the stream, of each entry of document_order_
  std::variant<std::span<const std::uint32_t>, std::span<const std::uint64_t>> shuffle_;
};

}  // namespace trireme::data
