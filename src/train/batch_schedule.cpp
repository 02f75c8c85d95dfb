#include "src/train/batch_schedule.hpp"

#include <algorithm>

#include "src/base/check.hpp"

namespace trireme::train {
namespace {

__extension__ using Wide = __int128;

// Limits the memory of an update's schedule and of the batch sizes.
constexpr std::int64_t micro_batch_limit = 100'000;
constexpr std::int64_t level_limit = 1'000'000;

/// Level k = 0, 1 ... begins at sample number ceil(k samples / increments).
std::vector<BatchLevel> levels_of(const BatchRampUp& ramp, std::int64_t global_batch_size) {
  const auto& [start, increment, samples] = ramp;
  TRIREME_CHECK(start >= 1 && increment >= 1 && samples >= 1, ConfigError,
                "<rampup_batch_size> {} {} {}: first batch, increment and samples are each at least 1", start,
                increment, samples);
  TRIREME_CHECK(start < global_batch_size && (global_batch_size - start) % increment == 0, ConfigError,
                "<rampup_batch_size> {} {} {} does not lead to <global_batch_size> {}: it must be the first batch and "
                "a whole number of increments, such as {}",
                start, increment, samples, global_batch_size,
                start + std::max<std::int64_t>(1, (global_batch_size - start) / increment) * increment);
  const std::int64_t increments = (global_batch_size - start) / increment;
  TRIREME_CHECK(increments <= level_limit, ConfigError,
                "<rampup_batch_size> {} {} {} has {} increments, more than {}: choose larger ones", start, increment,
                samples, increments, level_limit);
  std::vector<BatchLevel> levels;
  for (std::int64_t k = 0; k <= increments; ++k) {
    const auto begin = static_cast<std::int64_t>((Wide{k} * samples + increments - 1) / increments);
    // The last of several levels that begin at one sample applies.
    if (!levels.empty() && levels.back().begin == begin) levels.pop_back();
    levels.push_back({begin, start + k * increment});
  }
  return levels;
}

std::vector<BatchLevel> levels_of(const BatchSteps& steps, std::int64_t global_batch_size) {
  const std::vector<BatchLevel>& levels = steps.levels;
  TRIREME_CHECK(!levels.empty() && levels.front().begin == 0, ConfigError,
                "<step_batch_size_schedule> must begin at 0, as '0:16 1M:32' does");
  for (std::size_t i = 0; i < levels.size(); ++i) {
    TRIREME_CHECK(levels[i].size >= 1, ConfigError, "<step_batch_size_schedule>: a batch of {} samples; at least 1",
                  levels[i].size);
    TRIREME_CHECK(i == 0 || levels[i].begin > levels[i - 1].begin, ConfigError,
                  "<step_batch_size_schedule>: two sizes, {} and {}, begin at sample {}. Thresholds are in tokens, "
                  "divided by <seq_length>.",
                  levels[i - 1].size, levels[i].size, levels[i].begin);
  }
  TRIREME_CHECK(std::ranges::max(levels, {}, &BatchLevel::size).size == global_batch_size, ConfigError,
                "<step_batch_size_schedule>: its largest batch must be <global_batch_size> {}", global_batch_size);
  return levels;
}

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

BatchSchedule::BatchSchedule(std::int64_t global_batch_size, const std::optional<BatchGrowth>& growth, bool decrease,
                             std::int64_t micro_batch_size, std::int64_t data_ranks)
    : global_batch_size_(global_batch_size), unit_(micro_batch_size * data_ranks), levels_{{0, global_batch_size}} {
  if (growth) levels_ = std::visit([&](const auto& rule) { return levels_of(rule, global_batch_size); }, *growth);
  TRIREME_CHECK(max_micro_batches() <= micro_batch_limit, ConfigError,
                "<global_batch_size> {} is {} micro-batches on each data rank, more than the {} that can be planned: "
                "choose a smaller one, or a larger <micro_batch_size>",
                global_batch_size, max_micro_batches(), micro_batch_limit);
  const bool in_steps = growth && std::holds_alternative<BatchSteps>(*growth);
  const char* const of_level =
      in_steps ? "<step_batch_size_schedule>: a global batch of" : "<rampup_batch_size>: a global batch of";
  for (std::size_t i = levels_.size(); i-- > 0;) {
    const std::int64_t size = levels_[i].size;
    if (decrease && size > unit_) continue;
    micro_batches_of(size, micro_batch_size, data_ranks,
                     size == global_batch_size && !in_steps ? "<global_batch_size>" : of_level,
                     decrease || size < unit_ ? "" : ", or <decrease_batch_size_if_needed>");
  }
}

std::size_t BatchSchedule::level_of(std::int64_t consumed) const {
  const auto above = std::ranges::upper_bound(levels_, consumed, {}, &BatchLevel::begin);
  return static_cast<std::size_t>(above - levels_.begin()) - 1;
}

std::vector<BatchPhase> BatchSchedule::plan(std::int64_t consumed, std::int64_t total, std::int64_t iterations) const {
  std::vector<BatchPhase> phases;
  while (consumed < total) {
    const std::int64_t batch = size(consumed);
    const std::int64_t to_next_level = (end_of(level_of(consumed)) - consumed - 1) / batch + 1;
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
