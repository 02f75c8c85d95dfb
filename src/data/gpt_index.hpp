#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "src/data/split.hpp"

namespace trireme::data {

/// The order in which Megatron-LM's GPT dataset reads documents, for at least a given number of samples of
/// sequence_length + 1 tokens.
///
/// As many epochs (copies of all documents) as the samples need are shuffled together and laid end to end; sample j of
/// that stream is its tokens [j·s, j·s + s + 1), so two neighbours share a token; then the samples are shuffled. Where
/// less than 80 % of the last epoch is needed, it is kept apart in both shuffles, so that its samples come last.
/// NumPy's generator is used for the documents first, then for the samples. The order thus depends on the number of
/// samples asked for.
class GptIndex {
 public:
  /// `range` holds at least sequence_length + 1 tokens; `samples` is at least 1.
  GptIndex(const DocumentRange& range, std::int64_t sequence_length, std::int64_t samples, std::uint32_t seed);

  /// Samples there are: all that the epochs give, so usually more than were asked for.
  std::int64_t size() const;
  std::int64_t epochs() const { return epochs_; }
  /// Number in the stream of the sample that is read as sample `index`.
  std::int64_t shuffled(std::int64_t index) const;
  /// Document of each entry of the stream, counted from the range's first.
  std::span<const std::uint32_t> document_order() const { return document_order_; }

  struct Position {
    std::int64_t entry;   ///< of document_order
    std::int64_t offset;  ///< token in that document
  };
  /// Where the stream's sample `sample` begins; also size(), where the last one ends.
  Position position(std::int64_t sample) const;

 private:
  std::int64_t sequence_length_;
  std::int64_t epochs_;
  std::vector<std::uint32_t> document_order_;
  std::vector<std::int64_t> starts_;  // in the stream, of each entry of document_order_
  std::variant<std::vector<std::uint32_t>, std::vector<std::uint64_t>> shuffle_;
};

}  // namespace trireme::data
