#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "src/data/dataset/sample_source.hpp"
#include "src/data/tasks/glue.hpp"
#include "src/data/tasks/race.hpp"
#include "src/data/tasks/squad.hpp"

namespace trireme::data {

/// Positions of a task's samples and the tokens around their texts.
struct TaskPacking {
  std::int64_t sequence_length = 512;
  PairTokens tokens;
};

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
  /// Label number `index`, 0 <= index < labels(): a class, the right choice, or a position.
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

/// Pairs of texts with a class.
class PairSamples final : public TaskSamples {
 public:
  PairSamples(const TaskPacking& packing, const Tokenizer& tokenizer, const std::vector<TextPair>& pairs);
  std::int64_t size() const override { return std::ssize(labels_); }
  std::int32_t label(std::int64_t index) const override { return labels_[static_cast<std::size_t>(index)]; }

 private:
  PackedPair packed(std::int64_t index) const override;
  TokenLists texts_;  // two for each pair
  std::vector<std::int32_t> labels_;
};

/// Questions of RACE, of which each choice is a sample.
class RaceSamples final : public TaskSamples {
 public:
  RaceSamples(const TaskPacking& packing, RaceExamples examples)
      : TaskSamples(packing, race_choices), examples_(std::move(examples)) {}
  std::int64_t size() const override { return std::ssize(examples_.questions) * race_choices; }
  std::int32_t label(std::int64_t index) const override {
    return examples_.questions[static_cast<std::size_t>(index)].label;
  }

 private:
  PackedPair packed(std::int64_t index) const override;
  RaceExamples examples_;
};

/// Windows of SQuAD's contexts.
class SquadSamples final : public TaskSamples {
 public:
  /// Keeps a reference to `examples`.
  SquadSamples(const TaskPacking& packing, const SquadExamples& examples)
      : TaskSamples(packing, 1), examples_(examples) {}
  std::int64_t size() const override { return std::ssize(examples_.windows()); }
  std::int32_t label(std::int64_t index) const override { return window(index).start; }

 private:
  const SquadWindow& window(std::int64_t index) const { return examples_.windows()[static_cast<std::size_t>(index)]; }
  PackedPair packed(std::int64_t index) const override { return examples_.packed(window(index)); }
  std::int32_t span_end(std::int64_t index) const override { return window(index).end; }
  const SquadExamples& examples_;
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
  using Order = std::vector<std::int64_t>;
  std::shared_ptr<const Order> order(std::int64_t epoch) const;
  /// The sample of the source that is sample `index` of these.
  std::int64_t row_of(std::int64_t index) const;

  const TaskSamples& samples_;
  std::uint64_t seed_;
  std::int64_t epochs_;
  std::int64_t labels_per_epoch_;
  mutable std::mutex mutex_;
  mutable std::map<std::int64_t, std::shared_ptr<const Order>> orders_;  // the latest two
};

}  // namespace trireme::data
