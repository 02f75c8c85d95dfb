#include "src/data/tasks/task_samples.hpp"

#include <algorithm>
#include <numeric>

#include "src/data/dataset/numpy_random.hpp"

namespace trireme::data {

void TaskSamples::read(std::int64_t index, const SampleView& sample) const {
  const PackedPair pair = packed(index);
  const std::size_t length = pair.tokens.size();
  const auto write = [&](std::span<std::int32_t> to, const std::vector<std::int32_t>& from, std::int32_t rest) {
    if (to.empty()) return;
    std::ranges::copy(from, to.begin());
    std::ranges::fill(to.subspan(length), rest);
  };
  write(sample.tokens, pair.tokens, packing_.tokens.pad);
  write(sample.token_types, pair.token_types, 0);
  std::ranges::fill(sample.labels, -1);
  std::ranges::fill(sample.length, static_cast<std::int32_t>(length));
  std::ranges::fill(sample.last_token, static_cast<std::int32_t>(length) - 1);
  std::ranges::fill(sample.is_random, label(index / samples_per_label_));
  std::ranges::fill(sample.span_end, span_end(index));
}

PairSamples::PairSamples(const TaskPacking& packing, const Tokenizer& tokenizer, const std::vector<TextPair>& pairs)
    : TaskSamples(packing, 1) {
  std::vector<std::int32_t> ids;
  for (const TextPair& pair : pairs) {
    for (const std::string* text : {&pair.a, &pair.b}) {
      ids.clear();
      tokenizer.encode(*text, ids);
      texts_.add(ids);
    }
    labels_.push_back(pair.label);
  }
}

PackedPair PairSamples::packed(std::int64_t index) const {
  return pack_pair(texts_[2 * index], texts_[2 * index + 1], packing().sequence_length, packing().tokens);
}

PackedPair RaceSamples::packed(std::int64_t index) const {
  return examples_.packed(examples_.questions[static_cast<std::size_t>(index / race_choices)],
                          static_cast<std::size_t>(index % race_choices), packing().sequence_length, packing().tokens);
}

EpochSamples::EpochSamples(const TaskSamples& samples, std::uint64_t seed, std::int64_t epochs,
                           std::int64_t labels_per_epoch)
    : samples_(samples), seed_(seed), epochs_(epochs), labels_per_epoch_(labels_per_epoch) {}

std::shared_ptr<const EpochSamples::Order> EpochSamples::order(std::int64_t epoch) const {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Order>& order = orders_[epoch];
  if (!order) {
    Order made(static_cast<std::size_t>(samples_.labels()));
    std::iota(made.begin(), made.end(), 0);
    NumpyRandom(static_cast<std::uint32_t>(seed_ + static_cast<std::uint64_t>(epoch))).shuffle(std::span(made));
    order = std::make_shared<const Order>(std::move(made));
  }
  const std::shared_ptr<const Order> result = order;
  while (orders_.size() > 2)
    orders_.erase(orders_.begin()->first == epoch ? std::prev(orders_.end()) : orders_.begin());
  return result;
}

std::int64_t EpochSamples::row_of(std::int64_t index) const {
  const std::int64_t choices = samples_.samples_per_label();
  const std::int64_t number = index / choices;  // counts labels
  const std::int64_t row = (*order(number / labels_per_epoch_))[static_cast<std::size_t>(number % labels_per_epoch_)];
  return row * choices + index % choices;
}

void EpochSamples::read(std::int64_t index, const SampleView& sample) const { samples_.read(row_of(index), sample); }

}  // namespace trireme::data
