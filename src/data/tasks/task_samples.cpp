#include "src/data/tasks/task_samples.hpp"

#include <algorithm>
#include <numeric>

#include "src/base/check.hpp"
#include "src/data/dataset/numpy_random.hpp"

namespace trireme::data {

PackedPair pack_pair(std::span<const std::int32_t> a, std::optional<std::span<const std::int32_t>> b,
                     std::int64_t max_length, const PairTokens& tokens) {
  PackedPair packed;
  const auto room = static_cast<std::size_t>(std::max<std::int64_t>(max_length, 1));
  bool is_cut = false;
  const auto append = [&](std::span<const std::int32_t> list, std::int32_t type) {
    const std::size_t size = std::min(list.size(), room - packed.tokens.size());
    packed.tokens.insert(packed.tokens.end(), list.begin(), list.begin() + static_cast<std::ptrdiff_t>(size));
    packed.token_types.resize(packed.tokens.size(), type);
  };
  append({&tokens.cls, 1}, 0);
  append(a, 0);
  append({&tokens.sep, 1}, 0);
  if (b) append(*b, 1);
  is_cut = packed.tokens.size() >= room;
  if (is_cut) {
    packed.tokens.resize(room - 1);
    packed.token_types.resize(room - 1);
  }
  if (b || is_cut) append({&tokens.sep, 1}, b ? 1 : 0);
  return packed;
}

void TaskSamples::read(std::int64_t index, const SampleView& sample) const {
  const PackedPair pair = packed(index);
  const std::size_t length = pair.tokens.size();
  const auto write = [&](std::span<std::int32_t> to, const std::vector<std::int32_t>& from, std::int32_t rest) {
    if (to.empty()) return;
    TRIREME_CHECK(length <= to.size(), ShapeError, "an example of {} tokens for samples of {}", length, to.size());
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

EpochSamples::EpochSamples(const TaskSamples& samples, std::uint64_t seed, std::int64_t epochs,
                           std::int64_t labels_per_epoch)
    : samples_(samples), seed_(seed), epochs_(epochs), labels_per_epoch_(labels_per_epoch) {}

std::int64_t EpochSamples::row_of(std::int64_t index) const {
  const std::int64_t choices = samples_.samples_per_label();
  const std::int64_t number = index / choices;  // counts labels
  const std::int64_t epoch = number / labels_per_epoch_;
  const auto order = orders_.at(epoch, [&] {
    std::vector<std::int64_t> made(static_cast<std::size_t>(samples_.labels()));
    std::iota(made.begin(), made.end(), 0);
    NumpyRandom(static_cast<std::uint32_t>(seed_ + static_cast<std::uint64_t>(epoch))).shuffle(std::span(made));
    return made;
  });
  const std::int64_t row = (*order)[static_cast<std::size_t>(number % labels_per_epoch_)];
  return row * choices + index % choices;
}

void EpochSamples::read(std::int64_t index, const SampleView& sample) const { samples_.read(row_of(index), sample); }

}  // namespace trireme::data
