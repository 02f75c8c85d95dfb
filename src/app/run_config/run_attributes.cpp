#include "src/app/run_config/run_attributes.hpp"

#include <charconv>
#include <sstream>

#include "src/base/check.hpp"
#include "src/train/progress.hpp"

namespace trireme::app {
namespace {

template <class T>
T number(const Attributes& attributes, const std::string& name) {
  const std::string& text = attribute(attributes, name);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  TRIREME_CHECK(error == std::errc() && end == text.data() + text.size(), CheckpointError,
                "the checkpoint's {} is '{}', which is not a number", name, text);
  return value;
}

/// Returns whether the name of any attribute begins with `prefix`.
bool begins(const Attributes& attributes, std::string_view prefix) {
  const auto found = attributes.lower_bound(std::string(prefix));
  return found != attributes.end() && found->first.starts_with(prefix);
}

}  // namespace

const std::string& attribute(const Attributes& attributes, const std::string& name) {
  const auto found = attributes.find(name);
  TRIREME_CHECK(found != attributes.end(), CheckpointError, "the checkpoint does not say '{}'", name);
  return found->second;
}

Attributes attributes_of(const model::GptConfig& config) {
  return {
      {"model.kind", "gpt2"},
      {"model.layers", fmt::format("{}", config.layers)},
      {"model.hidden", fmt::format("{}", config.hidden)},
      {"model.heads", fmt::format("{}", config.heads)},
      {"model.ffn_hidden", fmt::format("{}", config.ffn_hidden)},
      {"model.max_positions", fmt::format("{}", config.max_positions)},
      {"model.vocabulary", fmt::format("{}", config.vocabulary)},
      {"model.gelu", config.activation == Activation::gelu_erf ? "erf" : "tanh"},
      {"model.norm_epsilon", fmt::format("{:.17g}", config.norm_epsilon)},
      {"model.kv_heads", fmt::format("{}", config.kv_heads())},
      {"model.normalization", config.normalization == model::Normalization::rms_norm ? "RMSNorm" : "LayerNorm"},
      {"model.positions", config.position_embedding == model::PositionEmbedding::rope ? "rope" : "learned_absolute"},
      {"model.rotary_base", fmt::format("{:.17g}", config.rotary_base)},
      {"model.rotary_percent", fmt::format("{:.17g}", config.rotary_percent)},
      {"model.swiglu", config.swiglu ? "true" : "false"},
      {"model.linear_bias", config.linear_bias ? "true" : "false"},
      {"model.tied_output", config.tied_output ? "true" : "false"}};
}

model::GptConfig config_from(const Attributes& attributes) {
  TRIREME_CHECK(attribute(attributes, "model.kind") == "gpt2", CheckpointError,
                "the checkpoint holds a '{}', not a gpt2", attribute(attributes, "model.kind"));
  model::GptConfig config;
  config.layers = number<int>(attributes, "model.layers");
  config.hidden = number<std::int64_t>(attributes, "model.hidden");
  config.heads = number<std::int64_t>(attributes, "model.heads");
  config.ffn_hidden = number<std::int64_t>(attributes, "model.ffn_hidden");
  config.max_positions = number<std::int64_t>(attributes, "model.max_positions");
  config.vocabulary = number<std::int64_t>(attributes, "model.vocabulary");
  config.activation = attribute(attributes, "model.gelu") == "erf" ? Activation::gelu_erf : Activation::gelu_tanh;
  config.norm_epsilon = number<double>(attributes, "model.norm_epsilon");
  // Checkpoints from before there were others than GPT-2's do not say the rest.
  if (attributes.contains("model.kv_heads")) {
    const auto is = [&](const char* name, const char* value) { return attribute(attributes, name) == value; };
    const auto kv_heads = number<std::int64_t>(attributes, "model.kv_heads");
    config.query_groups = kv_heads == config.heads ? 0 : kv_heads;
    if (is("model.normalization", "RMSNorm")) config.normalization = model::Normalization::rms_norm;
    if (is("model.positions", "rope")) config.position_embedding = model::PositionEmbedding::rope;
    config.rotary_base = number<double>(attributes, "model.rotary_base");
    config.rotary_percent = number<double>(attributes, "model.rotary_percent");
    config.swiglu = is("model.swiglu", "true");
    config.linear_bias = is("model.linear_bias", "true");
    config.tied_output = is("model.tied_output", "true");
  }
  try {
    model::validate(config);
  } catch (const ConfigError& error) {
    throw CheckpointError("the checkpoint describes an impossible model: {}", error.what());
  }
  return config;
}

Attributes attributes_of(const std::vector<data::WeightedStore>& stores, const data::GptDataOptions& options) {
  Attributes attributes;
  std::string corpora;
  for (const data::WeightedStore& store : stores) {
    corpora += (corpora.empty() ? "" : " ") + store.store->info().content_digest;
    if (stores.size() > 1) corpora += fmt::format("*{:.17g}", store.weight);
  }
  attributes["data.corpora"] = corpora;
  attributes["data.tokenizer"] = stores.front().store->info().tokenizer_digest;
  attributes["data.seed"] = fmt::format("{}", options.seed);
  attributes["data.sequence_length"] = fmt::format("{}", options.sequence_length);
  attributes["data.sampling"] = options.sampling == data::Sampling::sequential ? "sequential" : "shuffled";
  attributes["data.split"] = fmt::format("{:.17g},{:.17g},{:.17g} by {}", options.split_shares[0],
                                         options.split_shares[1], options.split_shares[2],
                                         options.split_by == data::SplitBy::automatic   ? "auto"
                                         : options.split_by == data::SplitBy::documents ? "documents"
                                                                                        : "tokens");
  return attributes;
}

std::int64_t trained_sequence_length(const Attributes& attributes) {
  const auto length = number<std::int64_t>(attributes, "data.sequence_length");
  TRIREME_CHECK(length >= 1, CheckpointError, "the checkpoint's data.sequence_length {} is no length", length);
  return length;
}

Attributes attributes_of(const train::TrainOptions& options) {
  Attributes attributes;
  const auto add = [&](const std::string& option, const auto& value) {
    attributes["training." + option] = fmt::format("{}", value);
  };
  const optim::LrSchedule& lr = options.lr_schedule;
  const char* unit = lr.by_samples ? "samples" : "iters";
  add("global-batch-size", options.global_batch_size);
  if (options.ramp_up) {
    const train::BatchRampUp& ramp = *options.ramp_up;
    add("rampup-batch-size", fmt::format("{} {} {}", ramp.start, ramp.increment, ramp.samples));
  }
  add("loss-average", options.loss_average == train::LossAverage::tokens ? "tokens" : "micro-batch");
  add("lr", lr.maximum);
  add("min-lr", lr.minimum);
  add("lr-decay-style", lr.style == optim::LrDecayStyle::constant ? "constant"
                        : lr.style == optim::LrDecayStyle::linear ? "linear"
                        : lr.style == optim::LrDecayStyle::cosine ? "cosine"
                                                                  : "inverse-square-root");
  add(fmt::format("lr-warmup-{}", unit), lr.warmup);
  add(fmt::format("lr-decay-{}", unit), lr.decay);
  add("weight-decay", options.optimizer.weight_decay);
  attributes["optimizer"] = optim::name_of(options.optimizer.kind);
  if (options.optimizer.kind == optim::OptimizerKind::sgd) {
    add("sgd-momentum", options.optimizer.sgd.momentum);
  } else {
    add("adam-beta1", options.optimizer.adamw.beta1);
    add("adam-beta2", options.optimizer.adamw.beta2);
    add("adam-eps", options.optimizer.adamw.epsilon);
  }
  add("clip-grad", options.clip_grad);
  const optim::LossScalerOptions& scale = options.loss_scale;
  add("loss-scale", scale.dynamic ? "dynamic" : fmt::format("{}", scale.initial_scale));
  if (scale.dynamic) {
    add("min-loss-scale", scale.minimum_scale);
    add("loss-scale-window", scale.growth_window);
    add("hysteresis", scale.hysteresis);
  }
  return attributes;
}

void require_same_optimizer(const Attributes& stored, const Attributes& now) {
  // Older checkpoints do not say it.
  const std::string there = stored.contains("optimizer") ? stored.at("optimizer") : "adam";
  const std::string& here = attribute(now, "optimizer");
  TRIREME_CHECK(there == here, CheckpointError,
                "the checkpoint holds the state of --optimizer {}, which cannot continue with --optimizer {}. Try "
                "--optimizer {}, or another --load.",
                there, here, there);
}

std::vector<std::string> changed_options(const Attributes& stored, const Attributes& now) {
  constexpr std::string_view prefix = "training.";
  const bool are_stored = begins(stored, prefix);
  std::map<std::string, std::pair<std::string, std::string>> options;  // by name: in the checkpoint, now
  const auto collect = [&](const Attributes& attributes, auto member) {
    for (const auto& [name, value] : attributes) {
      if (name == "dtype") options[name].*member = value;
      if (are_stored && name.starts_with(prefix)) options[name.substr(prefix.size())].*member = value;
    }
  };
  using Values = std::pair<std::string, std::string>;
  collect(stored, &Values::first);
  collect(now, &Values::second);
  std::vector<std::string> lines;
  const auto named = [](const std::string& value) { return value.empty() ? "not set" : value; };
  for (const auto& [name, values] : options) {
    if (values.first == values.second) continue;
    lines.push_back(
        fmt::format("--{} was {} in the checkpoint, now {}", name, named(values.first), named(values.second)));
  }
  return lines;
}

std::string budgets_text(const std::vector<data::SampleBudget>& budgets) {
  std::string text;
  for (const data::SampleBudget& budget : budgets) {
    text += fmt::format("{}{},{},{}", text.empty() ? "" : ";", budget.train, budget.valid, budget.test);
  }
  return text;
}

std::vector<data::SampleBudget> budgets_from(const Attributes& attributes) {
  std::vector<data::SampleBudget> budgets;
  std::istringstream list(attribute(attributes, "data_budgets"));
  for (std::string entry; std::getline(list, entry, ';');) {
    data::SampleBudget budget;
    char comma = 0;
    std::istringstream fields(entry);
    fields >> budget.train >> comma >> budget.valid >> comma >> budget.test;
    TRIREME_CHECK(!fields.fail() && fields.peek() == EOF && budget.train >= 0 && budget.valid >= 0 && budget.test >= 0,
                  CheckpointError, "the checkpoint's data_budgets hold '{}', which is not three numbers", entry);
    budgets.push_back(budget);
  }
  return budgets;
}

void check_attributes(const Attributes& attributes, std::int64_t step, const std::string& file) {
  try {
    if (begins(attributes, "model.")) config_from(attributes);
    if (begins(attributes, "data_budgets")) budgets_from(attributes);
    if (attributes.contains("dtype")) dtype_from_name(attributes.at("dtype"));
    if (!begins(attributes, "state.")) return;
    const train::SavedState state = train::state_from(attributes);
    TRIREME_CHECK(state.progress.iteration == step, CheckpointError,
                  "the checkpoint's state.iteration is {}, but the step is {}", state.progress.iteration, step);
  } catch (const Error& error) {
    throw CheckpointError("{}: {}; load another step, by its folder", file, error.what());
  }
}

void require_equal(const Attributes& stored, const Attributes& expected, const std::string& what,
                   const std::string& remedy) {
  std::string table;
  for (const auto& [name, value] : expected) {
    const auto found = stored.find(name);
    const std::string there = found == stored.end() ? "(missing)" : found->second;
    if (there != value) table += fmt::format("\n  {:<24} checkpoint {:<36} this run {}", name, there, value);
  }
  TRIREME_CHECK(table.empty(), CheckpointError, "{}:{}\n{}", what, table, remedy);
}

}  // namespace trireme::app
