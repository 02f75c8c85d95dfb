#include "src/train/batch_schedule.hpp"

#include <algorithm>

#include "src/base/check.hpp"

namespace trireme::train {
namespace {

__extension__ using Wide = __int128;

// The schedule of an update is a list in memory.
constexpr std::int64_t micro_batch_limit = 100'000;

}  // namespace

std::int64_t micro_batches_of(std::int64_t batch_size, std::int64_t micro_batch_size, std::int64_t data_ranks,
                              const std::string& name, const std::string& remedy) {
  const std::int64_t unit = micro_batch_size * data_ranks;
  const std::int64_t below = batch_size / unit * unit;
  TRIREME_CHECK(batch_size == below, ConfigError,
                "{} {} is not a multiple of <micro_batch_size> {} times {} data ranks (= {}): choose {}{}, another "
                "micro-batch size or number of ranks{}",
                name, batch_size, micro_batch_size, data_ranks, unit, below > 0 ? std::to_string(below) + " or " : "",
                below + unit, remedy);
  return batch_size / unit;
}

BatchSchedule::BatchSchedule(std::int64_t global_batch_size, const std::optional<BatchRampUp>& ramp_up, bool decrease,
                             std::int64_t micro_batch_size, std::int64_t data_ranks)
    : global_batch_size_(global_batch_size), unit_(micro_batch_size * data_ranks) {
  if (ramp_up) {
    ramp_up_ = *ramp_up;
    const auto& [start, increment, samples] = ramp_up_;
    TRIREME_CHECK(start >= 1 && increment >= 1 && samples >= 1, ConfigError,
                  "<rampup_batch_size> {} {} {}: first batch, increment and samples are each at least 1", start,
                  increment, samples);
    TRIREME_CHECK(
        start < global_batch_size && (global_batch_size - start) % increment == 0, ConfigError,
        "<rampup_batch_size> {} {} {} does not lead to <global_batch_size> {}: it must be the first batch and "
        "a whole number of increments, such as {}",
        start, increment, samples, global_batch_size,
        start + std::max<std::int64_t>(1, (global_batch_size - start) / increment) * increment);
    levels_ = (global_batch_size - start) / increment;
  }
  TRIREME_CHECK(max_micro_batches() <= micro_batch_limit, ConfigError,
                "<global_batch_size> {} is {} micro-batches on each data rank, more than the {} that can be planned: "
                "choose a smaller one, or a larger <micro_batch_size>",
                global_batch_size, max_micro_batches(), micro_batch_limit);
  for (std::int64_t level = levels_; level >= 0; --level) {
    const std::int64_t size = size_at(level);
    if (decrease && size > unit_) continue;
    micro_batches_of(size, micro_batch_size, data_ranks,
                     level == levels_ ? "<global_batch_size>" : "<rampup_batch_size>: a global batch of",
                     decrease || size < unit_ ? "" : ", or <decrease_batch_size_if_needed>");
  }
}

std::int64_t BatchSchedule::level_of(std::int64_t consumed) const {
  if (levels_ == 0 || consumed >= ramp_up_.samples) return levels_;
  return static_cast<std::int64_t>(Wide{consumed} * levels_ / ramp_up_.samples);
}

std::int64_t BatchSchedule::end_of(std::int64_t level) const {
  if (level == levels_) return std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>((Wide{level + 1} * ramp_up_.samples + levels_ - 1) / levels_);
}

std::vector<BatchPhase> BatchSchedule::plan(std::int64_t consumed, std::int64_t total, std::int64_t iterations) const {
  std::vector<BatchPhase> phases;
  while (consumed < total) {
    const std::int64_t level = level_of(consumed);
    const std::int64_t batch = size(consumed);
    const std::int64_t to_next_level = (end_of(level) - consumed - 1) / batch + 1;
    const std::int64_t count = std::min({to_next_level, (total - consumed) / batch, iterations});
    if (count == 0) break;
    if (phases.empty() || phases.back().size != batch) phases.push_back({batch, 0});
    phases.back().iterations += count;
    consumed += count * batch;
    iterations -= count;
  }
  return phases;
}

std::int64_t BatchSchedule::iterations(std::int64_t consumed, std::int64_t total) const {
  std::int64_t sum = 0;
  for (const BatchPhase& phase : plan(consumed, total)) sum += phase.iterations;
  return sum;
}

std::int64_t BatchSchedule::samples(std::int64_t consumed, std::int64_t iterations) const {
  std::int64_t sum = 0;
  for (const BatchPhase& phase : plan(consumed, std::numeric_limits<std::int64_t>::max(), iterations)) {
    sum += phase.size * phase.iterations;
  }
  return sum;
}

}  // namespace trireme::train
