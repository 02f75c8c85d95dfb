#include "src/train/progress.hpp"

#include <charconv>
#include <cmath>
#include <limits>

#include "src/base/check.hpp"

namespace trireme::train {
namespace {

using Attributes = std::map<std::string, std::string>;

const std::string& text_of(const Attributes& attributes, const std::string& name) {
  const auto found = attributes.find("state." + name);
  TRIREME_CHECK(found != attributes.end(), CheckpointError,
                "the checkpoint does not say 'state.{}': it was not written by a training run", name);
  return found->second;
}

/// The whole text as a number from `least` on; `needed` says in words what it must be.
template <class T>
T number(const Attributes& attributes, const std::string& name, T least, const char* needed) {
  const std::string& text = text_of(attributes, name);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  TRIREME_CHECK(error == std::errc() && end == text.data() + text.size() && value >= least &&
                    value <= std::numeric_limits<T>::max(),
                CheckpointError, "the checkpoint's state.{} is '{}' instead of {}", name, text, needed);
  return value;
}

void check_sums(const SavedState& state) {
  const Progress& progress = state.progress;
  const auto at_most = [](const char* name, std::int64_t value, const char* limit_name, std::int64_t limit) {
    TRIREME_CHECK(value <= limit, CheckpointError,
                  "the checkpoint's state.{} is {} and its state.{} {}: the first cannot be greater", name, value,
                  limit_name, limit);
  };
  at_most("skipped", progress.skipped, "iteration", progress.iteration);
  at_most("skipped_in_row", progress.skipped_in_row, "skipped", progress.skipped);
  at_most("skipped_at_minimum_scale", progress.skipped_at_minimum_scale, "skipped_in_row", progress.skipped_in_row);
  at_most("iteration", progress.iteration, "consumed_samples", progress.consumed_samples);
  at_most("updated_samples", progress.updated_samples, "consumed_samples", progress.consumed_samples);
  TRIREME_CHECK(state.updates == progress.iteration - progress.skipped, CheckpointError,
                "the checkpoint's state.updates is {}, which is not its state.iteration {} less its state.skipped {}",
                state.updates, progress.iteration, progress.skipped);
}

}  // namespace

SavedState state_from(const Attributes& attributes) {
  const char* whole = "a whole number from 0 on";
  const auto count = [&](const char* name) { return number<std::int64_t>(attributes, name, 0, whole); };
  SavedState state;
  Progress& progress = state.progress;
  progress.iteration = count("iteration");
  progress.consumed_samples = count("consumed_samples");
  progress.skipped = count("skipped");
  progress.skipped_in_row = number<int>(attributes, "skipped_in_row", 0, whole);
  progress.updated_samples = count("updated_samples");
  // Unknown to older checkpoints.
  if (attributes.contains("state.skipped_at_minimum_scale")) {
    progress.skipped_at_minimum_scale = number<int>(attributes, "skipped_at_minimum_scale", 0, whole);
  }
  const auto is_true = [&](const char* name) {
    if (!attributes.contains(std::string("state.") + name)) return false;
    const std::string& text = text_of(attributes, name);
    TRIREME_CHECK(text == "true" || text == "false", CheckpointError,
                  "the checkpoint's state.{} is '{}', which is neither true nor false", name, text);
    return text == "true";
  };
  progress.evaluation_left = is_true("evaluation_left");
  progress.tested = is_true("tested");
  state.updates = count("updates");
  state.loss_scale.scale =
      number<double>(attributes, "loss_scale", std::numeric_limits<double>::min(), "a number above 0");
  state.loss_scale.good_updates = number<int>(attributes, "loss_scale_good_updates", 0, whole);
  // Every overflow takes one, whatever is left.
  state.loss_scale.hysteresis_left =
      number<int>(attributes, "loss_scale_hysteresis_left", std::numeric_limits<int>::min(), "a whole number");
  check_sums(state);
  return state;
}

Progress progress_from(const Attributes& attributes) { return state_from(attributes).progress; }

}  // namespace trireme::train
