#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "src/data/dataset/next_token_labels.hpp"

namespace trireme::data {

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
  void read_text(std::int64_t index, std::span<std::int32_t> text) const override;
  std::vector<std::int64_t> document_starts(std::int64_t index) const override;
  void check_unchanged() const override { epoch_->check_unchanged(); }

 private:
  using Order = std::shared_ptr<const std::vector<std::uint32_t>>;
  Order order(std::int64_t epoch) const;
  /// Returns the sample of the epoch that stands at `index`.
  std::int64_t sample_at(std::int64_t index) const;

  std::unique_ptr<NextTokenSamples> epoch_;
  std::int64_t size_;
  mutable std::mutex mutex_;
  mutable std::map<std::int64_t, Order> orders_;  // by epoch: the two read last
};

}  // namespace trireme::data
