#include "src/app/run_config/run_attributes.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace trireme::app {
namespace {

/// Values of an attribute; empty: not set.
struct Values {
  std::string stored, run;
};

/// Returns the attributes that differ and whose names satisfy `is_compared`.
template <class Predicate>
std::map<std::string, Values> differences(const Attributes& stored, const Attributes& run,
                                          const Predicate& is_compared) {
  std::map<std::string, Values> values;
  for (const auto& [name, value] : stored.texts()) values[name].stored = value;
  for (const auto& [name, value] : run.texts()) values[name].run = value;
  std::erase_if(
      values, [&](const auto& entry) { return !is_compared(entry.first) || entry.second.stored == entry.second.run; });
  return values;
}

std::string text_of(const std::string& value, const char* absent = "not set") { return value.empty() ? absent : value; }

/// Throws CheckpointError with a table of the attributes under `prefix` that differ. `what` names the difference,
/// `remedy` the way out.
void require_equal(const Attributes& stored, const Attributes& run, std::string_view prefix, const char* what,
                   const char* remedy) {
  std::string table;
  const auto has_prefix = [&](const std::string& name) { return name.starts_with(prefix); };
  for (const auto& [name, values] : differences(stored, run, has_prefix)) {
    table += fmt::format("\n  {:<24} checkpoint {:<36} this run {}", name, text_of(values.stored, "(missing)"),
                         text_of(values.run, "(missing)"));
  }
  TRIREME_CHECK(table.empty(), CheckpointError, "{}:{}\n{}", what, table, remedy);
}

/// Returns whether an attribute is a setting of learning rate or weight decay.
bool is_schedule(std::string_view name) {
  constexpr std::string_view prefixes[] = {"training.lr", "training.min-lr", "training.decoupled-", "training.train-"};
  return std::ranges::any_of(prefixes, [&](std::string_view prefix) { return name.starts_with(prefix); }) ||
         name.find("weight-decay") != std::string_view::npos;
}

}  // namespace

Attributes run_attributes(const model::ModelConfig& config, const std::vector<data::WeightedStore>& stores,
                          const SampleOptions& samples, const train::TrainOptions& options, DType dtype) {
  Attributes attributes = attributes_of(config);
  attributes.merge(std::visit([&](const auto& family) { return attributes_of(stores, family); }, samples));
  attributes.merge(attributes_of(options));
  for (const model::Field& field : model::fields()) {
    if (field.role == model::FieldRole::training && field.is_used(config)) {
      attributes.put(field.key(), field.text(config));
    }
  }
  put_dtype(attributes, dtype);
  attributes.put("tokenizer", stores.front().store->info().tokenizer);
  return attributes;
}

void put_dtype(Attributes& attributes, DType dtype) { attributes.put("dtype", dtype, training_types); }

DType trained_dtype(const Attributes& attributes) { return attributes.get("dtype", training_types); }

void check_attributes(const Attributes& attributes, std::int64_t step) {
  if (attributes.contains_prefix("model.")) model::config_from(attributes);
  if (attributes.contains("data_budgets")) data::budgets_from(attributes);
  if (attributes.contains("dtype")) trained_dtype(attributes);
  optim::optimizer_from(attributes);
  train::optimizer_state_of(attributes);
  if (!attributes.contains_prefix("state.")) return;
  const std::int64_t iteration = train::progress_from(attributes).iteration;
  attributes.require(iteration == step, "state.iteration", fmt::format("{}, the checkpoint's step", step));
}

void require_same_model(const Attributes& stored, const Attributes& run) {
  // Normalises the attributes: older checkpoints lack values or name the architecture differently.
  require_equal(attributes_of(model::config_from(stored)), run, "model.", "the checkpoint holds a different model",
                "Give its options, or --use-checkpoint-args instead of them, or another --load.");
}

void require_same_run(const Attributes& stored, const Attributes& run, bool allow_new_data,
                      train::OptimizerState optimizer) {
  require_same_model(stored, run);
  if (!allow_new_data) {
    require_equal(
        stored, run, "data.", "the checkpoint's run read other data, or in another order",
        "Give its options and corpora, or --allow-new-data to continue with these from the sample it has reached.");
  }
  if (optimizer == train::OptimizerState::left_out) return;
  TRIREME_CHECK(
      train::optimizer_state_of(stored) == train::OptimizerState::kept, CheckpointError,
      "the checkpoint has weights without the optimizer's state (--no-save-optim), so its run cannot resume as it "
      "was. Try --no-load-optim to resume with new moments, or --finetune to start a new run");
  const std::string_view there = optim::name_of(optim::optimizer_from(stored));
  const std::string_view here = optim::name_of(optim::optimizer_from(run));
  TRIREME_CHECK(there == here, CheckpointError,
                "the checkpoint holds the state of --optimizer {}, which cannot continue with --optimizer {}. Try "
                "--optimizer {}, --no-load-optim for new moments, or another --load.",
                there, here, there);
}

std::vector<std::string> settle_schedule(const Attributes& stored, ScheduleSource source, train::TrainOptions& options,
                                         Attributes& run) {
  if (source == ScheduleSource::command_line || train::progress_from(stored).iteration == 0) return {};
  const bool are_stored = stored.contains_prefix("training.lr");
  if (source == ScheduleSource::must_agree && !are_stored) return {};  // a checkpoint from before they were stored
  TRIREME_CHECK(
      are_stored, CheckpointError,
      "--use-checkpoint-opt-param-scheduler: the checkpoint is from before the settings of the learning rate were "
      "stored. Give them instead of this option.");
  const std::map<std::string, Values> settings = differences(stored, run, is_schedule);
  std::vector<std::string> lines;
  std::string table;
  for (const auto& [name, values] : settings) {
    const std::string flag = "--" + name.substr(std::string_view("training.").size());
    const std::string there = text_of(values.stored), here = text_of(values.run);
    table += fmt::format("\n  {:<26} checkpoint {:<24} this run {}", flag, there, here);
    lines.push_back(fmt::format("{} {} is the checkpoint's, instead of {}", flag, there, here));
  }
  TRIREME_CHECK(source == ScheduleSource::checkpoint || settings.empty(), CheckpointError,
                "the checkpoint's run has other settings of learning rate or weight decay:{}\nGive these, or "
                "--override-opt-param-scheduler to use the command line's, or "
                "--use-checkpoint-opt-param-scheduler to use the checkpoint's.",
                table);
  if (source == ScheduleSource::must_agree) return {};
  options.lr_schedule = optim::lr_schedule_from(stored);
  options.decoupled_rate = train::decoupled_rate_from(stored);
  options.weight_decay_ramp = optim::weight_decay_ramp_from(stored);
  options.optimizer.weight_decay = stored.get<double>("training.weight-decay");
  options.optimizer.decays_all = stored.contains("training.do-layernorm-bias-weight-decay");
  Attributes::Texts texts = run.texts();
  std::erase_if(texts, [](const auto& text) { return is_schedule(text.first); });
  for (const auto& [name, value] : stored.texts()) {
    if (is_schedule(name)) texts[name] = value;
  }
  run = Attributes(std::move(texts));
  return lines;
}

std::vector<std::string> changed_options(const Attributes& stored, const Attributes& run) {
  constexpr std::string_view prefix = "training.";
  const bool are_stored = stored.contains_prefix(prefix);
  std::vector<std::string> lines;
  const auto is_compared = [&](const std::string& name) {
    return name == "dtype" || (are_stored && name.starts_with(prefix));
  };
  for (const auto& [name, values] : differences(stored, run, is_compared)) {
    const bool is_older = values.stored.empty() && name.ends_with("-dropout");  // from before it was stored
    if (is_older) continue;
    lines.push_back(fmt::format("--{} was {} in the checkpoint, now {}",
                                name.starts_with(prefix) ? name.substr(prefix.size()) : name, text_of(values.stored),
                                text_of(values.run)));
  }
  return lines;
}

}  // namespace trireme::app
