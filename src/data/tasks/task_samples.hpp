#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/data/dataset/sample_source.hpp"

namespace trireme::data {

/// Ids of the tokens around two texts.
struct PairTokens {
  std::int32_t cls = -1, sep = -1, pad = -1;
};

/// Tokens of one sample and their segments: 0 to the first [SEP], 1 after it.
struct PackedPair {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> token_types;
};

/// Returns [CLS] A [SEP] B [SEP], or [CLS] A [SEP] without a B, unpadded. If the part before the last [SEP] has at
/// least `max_length` tokens, it is truncated to max_length - 1 and followed by [SEP], of segment 1 if there is a B.
/// This matches Megatron-LM, even if the cut is inside A.
PackedPair pack_pair(std::span<const std::int32_t> a, std::optional<std::span<const std::int32_t>> b,
                     std::int64_t max_length, const PairTokens& tokens);

/// Lists of tokens in one block of memory.
class TokenLists {
 public:
  /// Adds a list. Returns its number.
  std::int64_t add(std::span<const std::int32_t> tokens) {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    ends_.push_back(tokens_.size());
    return std::ssize(ends_) - 1;
  }
  std::span<const std::int32_t> operator[](std::int64_t list) const {
    const auto at = static_cast<std::size_t>(list);
    const std::size_t begin = at == 0 ? 0 : ends_[at - 1];
    return std::span(tokens_).subspan(begin, ends_[at] - begin);
  }

 private:
  std::vector<std::int32_t> tokens_;
  std::vector<std::size_t> ends_;
};

/// Positions of a task's samples and the tokens around their texts.
struct TaskPacking {
  std::int64_t sequence_length = 512;
  PairTokens tokens;
};

/// Returns a label that is a value of at least 0: the bits of the value in fp32, which are never negative.
inline std::int32_t label_of_value(double value) {
  return std::bit_cast<std::int32_t>(static_cast<float>(value) + 0.0F);  // -0 becomes 0
}
inline double value_of_label(std::int32_t label) { return static_cast<double>(std::bit_cast<float>(label)); }

/// Examples of a task as samples of a fixed length, in the order of their files.
class TaskSamples : public SampleSource {
 public:
  std::int64_t sequence_length() const final { return packing_.sequence_length; }
  std::int64_t length(std::int64_t index) const final { return std::ssize(packed(index).tokens); }
  SampleFields fields() const final {
    return {.token_types = true,
            .length = true,
            .is_random = true,
            .span_end = true,
            .last_token = true,
            .samples_per_label = samples_per_label_};
  }
  void read(std::int64_t index, const SampleView& sample) const final;
  /// Labels: samples over `samples_per_label`.
  std::int64_t labels() const { return size() / samples_per_label_; }
  std::int64_t samples_per_label() const { return samples_per_label_; }
  /// Label number `index`, 0 <= index < labels(): a class, label_of_value, the right choice, or a
  /// position.
  virtual std::int32_t label(std::int64_t index) const = 0;

 protected:
  TaskSamples(const TaskPacking& packing, std::int64_t samples_per_label)
      : packing_(packing), samples_per_label_(samples_per_label) {}
  const TaskPacking& packing() const { return packing_; }
  virtual PackedPair packed(std::int64_t index) const = 0;
  /// Last position of a sample's answer; negative if none.
  virtual std::int32_t span_end(std::int64_t) const { return -1; }

 private:
  TaskPacking packing_;
  std::int64_t samples_per_label_;
};

/// Samples of several epochs, each shuffled differently: by NumPy's RandomState(seed + epoch).shuffle(arange(n)), n the
/// labels of the source. Samples that share a label stay together. The first `labels_per_epoch` of an order are read.
/// The orders are independent of the grid.
class EpochSamples final : public SampleSource {
 public:
  /// Keeps a reference to `samples`. `labels_per_epoch` is at most samples.labels().
  EpochSamples(const TaskSamples& samples, std::uint64_t seed, std::int64_t epochs, std::int64_t labels_per_epoch);

  std::int64_t size() const override { return epochs_ * labels_per_epoch_ * samples_.samples_per_label(); }
  std::int64_t sequence_length() const override { return samples_.sequence_length(); }
  std::int64_t length(std::int64_t index) const override { return samples_.length(row_of(index)); }
  SampleFields fields() const override { return samples_.fields(); }
  void read(std::int64_t index, const SampleView& sample) const override;

 private:
  /// The sample of the source that is sample `index` of these.
  std::int64_t row_of(std::int64_t index) const;

  const TaskSamples& samples_;
  std::uint64_t seed_;
  std::int64_t epochs_;
  std::int64_t labels_per_epoch_;
  mutable EpochOrders<std::int64_t> orders_;
};

}  // namespace trireme::data
