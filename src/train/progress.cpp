#include "src/train/progress.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"

namespace trireme::train {
namespace {

constexpr const char* optimizer_state_name = "optimizer_state";
constexpr Choice<OptimizerState> optimizer_state_names[] = {{"kept", OptimizerState::kept},
                                                            {"left-out", OptimizerState::left_out}};

constexpr std::string_view loads_prefix = "state.expert_loads.";  // then the layer

/// Calls `field(name, value)` for every number of the state that each checkpoint has, except the loss scale.
template <class State, class Field>
void for_each_number(State& state, const Field& field) {
  field("state.iteration", state.progress.iteration);
  field("state.consumed_samples", state.progress.consumed_samples);
  field("state.skipped", state.progress.skipped);
  field("state.skipped_in_row", state.progress.skipped_in_row);
  field("state.updated_samples", state.progress.updated_samples);
  field("state.updates", state.updates);
  field("state.loss_scale_good_updates", state.loss_scale.good_updates);
}

/// The loads "N N ..." of each layer.
std::map<int, std::vector<double>> expert_loads_from(const Attributes& attributes) {
  std::map<int, std::vector<double>> loads;
  for (const auto& [name, text] : attributes.texts()) {
    if (!name.starts_with(loads_prefix)) continue;
    const std::optional<int> layer = parse_number<int>(std::string_view(name).substr(loads_prefix.size()));
    attributes.require(layer.value_or(-1) >= 0, name, "a name that ends with the number of a layer");
    attributes.require(!text.empty(), name, "numbers of tokens");
    for (const std::string_view word : split(text, ' ')) {
      const std::optional<double> load = parse_number<double>(word);
      attributes.require(load && std::isfinite(*load) && *load >= 0, name, "numbers of tokens");
      loads[*layer].push_back(*load);
    }
  }
  return loads;
}

/// Throws CheckpointError if values of `state` contradict each other.
void check_sums(const Attributes& attributes, const SavedState& state) {
  const auto at_most = [&](const char* name, std::int64_t value, const char* limit_name, std::int64_t limit) {
    attributes.require(value <= limit, name, fmt::format("at most {}, which is {}", limit_name, limit));
  };
  const Progress& progress = state.progress;
  at_most("state.skipped", progress.skipped, "state.iteration", progress.iteration);
  at_most("state.skipped_in_row", progress.skipped_in_row, "state.skipped", progress.skipped);
  at_most("state.skipped_at_minimum_scale", progress.skipped_at_minimum_scale, "state.skipped_in_row",
          progress.skipped_in_row);
  at_most("state.iteration", progress.iteration, "state.consumed_samples", progress.consumed_samples);
  at_most("state.noted_losses", progress.noted_losses, "state.iteration", progress.iteration);
  at_most("state.best_iteration", progress.best_iteration, "state.iteration", progress.iteration);
  at_most("state.updated_samples", progress.updated_samples, "state.consumed_samples", progress.consumed_samples);
  attributes.require(
      state.updates <= progress.updates(), "state.updates",
      fmt::format("at most state.iteration {} less state.skipped {}", progress.iteration, progress.skipped));
}

}  // namespace

void put_optimizer_state(Attributes& attributes, OptimizerState optimizer) {
  if (optimizer == OptimizerState::kept) return;  // as in older checkpoints
  attributes.put(optimizer_state_name, optimizer, optimizer_state_names);
}

OptimizerState optimizer_state_of(const Attributes& attributes) {
  if (!attributes.contains(optimizer_state_name)) return OptimizerState::kept;
  return attributes.get(optimizer_state_name, optimizer_state_names);
}

void Progress::add_iteration(std::int64_t batch_size, std::optional<Skip> skip, bool at_minimum_scale) {
  iteration += 1;
  evaluation_left = false;
  tested = false;
  consumed_samples += batch_size;
  updated_samples += skip ? 0 : batch_size;
  skipped += skip ? 1 : 0;
  if (skip == Skip::requested) return;  // unrelated to the numbers
  const bool is_bad = skip == Skip::not_finite;
  skipped_in_row = is_bad ? skipped_in_row + 1 : 0;
  skipped_at_minimum_scale = is_bad && at_minimum_scale ? skipped_at_minimum_scale + 1 : 0;
}

void Progress::note_loss(double loss) {
  if (noted_losses == spike_losses || !std::isfinite(loss)) return;
  noted_losses += 1;
  largest_loss = std::max(largest_loss, loss);
}

bool Progress::note_score(double score) {
  if (!std::isfinite(score) || (best_iteration > 0 && score <= best_score)) return false;
  best_iteration = iteration;
  best_score = score;
  return true;
}

Attributes attributes_of(const SavedState& state) {
  const Progress& progress = state.progress;
  Attributes attributes;
  for_each_number(state, [&](const char* name, auto number) { attributes.put(name, number); });
  attributes.put("state.skipped_at_minimum_scale", progress.skipped_at_minimum_scale);
  attributes.put("state.evaluation_left", progress.evaluation_left);
  attributes.put("state.tested", progress.tested);
  if (progress.best_iteration > 0) {
    attributes.put("state.best_iteration", progress.best_iteration);
    attributes.put("state.best_score", progress.best_score);
  }
  if (progress.noted_losses > 0) {
    attributes.put("state.noted_losses", progress.noted_losses);
    attributes.put("state.largest_loss", progress.largest_loss);
  }
  attributes.put("state.loss_scale", state.loss_scale.scale);
  attributes.put("state.loss_scale_hysteresis_left", state.loss_scale.hysteresis_left);
  for (const auto& [layer, loads] : state.expert_loads) {
    attributes.put(fmt::format("{}{}", loads_prefix, layer), fmt::format("{}", fmt::join(loads, " ")));
  }
  state.fp8_history.put(attributes);
  state.spikes.put(attributes);
  return attributes;
}

SavedState state_from(const Attributes& attributes) {
  // Older checkpoints lack these.
  const auto is_true = [&](const char* name) { return attributes.contains(name) && attributes.get<bool>(name); };
  SavedState state;
  Progress& progress = state.progress;
  for_each_number(state,
                  [&]<class Number>(const char* name, Number& number) { number = attributes.get(name, Number{0}); });
  if (attributes.contains("state.skipped_at_minimum_scale")) {
    progress.skipped_at_minimum_scale = attributes.get("state.skipped_at_minimum_scale", 0);
  }
  progress.evaluation_left = is_true("state.evaluation_left");
  progress.tested = is_true("state.tested");
  if (attributes.contains("state.best_iteration")) {
    progress.best_iteration = attributes.get("state.best_iteration", std::int64_t{0});
    progress.best_score = attributes.get<double>("state.best_score");
  }
  if (attributes.contains("state.noted_losses")) {
    progress.noted_losses = attributes.get("state.noted_losses", 0);
    progress.largest_loss = attributes.get<double>("state.largest_loss");
  }
  state.loss_scale.scale = attributes.get<double>("state.loss_scale");
  attributes.require(state.loss_scale.scale > 0, "state.loss_scale", "a number above 0");
  // May be negative: every overflow decrements it.
  state.loss_scale.hysteresis_left = attributes.get<int>("state.loss_scale_hysteresis_left");
  state.expert_loads = expert_loads_from(attributes);
  state.fp8_history = Fp8History::from(attributes);
  state.spikes = SpikeHistory::from(attributes);
  check_sums(attributes, state);
  return state;
}

Progress progress_from(const Attributes& attributes) { return state_from(attributes).progress; }

}  // namespace trireme::train
