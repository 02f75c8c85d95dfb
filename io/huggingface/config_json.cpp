#include "io/huggingface/config_json.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "io/json/json_text.hpp"
#include "io/posix/file.hpp"
#include "src/base/check.hpp"
#include "src/base/text.hpp"

namespace trireme::io {

namespace {

using exchange::ModelClass;
using model::ModelConfig;
using model::RotaryScaling;
using model::RotaryScalingKind;
using nlohmann::json;

constexpr std::int64_t max_config_bytes = std::int64_t{16} << 20;
constexpr int max_config_depth = 16;
constexpr std::int64_t max_size = std::int64_t{1} << 40;  // a model's shape is checked later

std::string text_of(const json& value) { return shortened(json_dump(value)); }

/// Settings of an object, with defaults. Collects unsupported values in `problems`.
class Settings {
 public:
  Settings(const json& object, std::vector<std::string>& problems) : object_(object), problems_(problems) {}

  bool has(const char* name) const { return !value(name).is_null(); }
  const json& value(const char* name) const { return json_member(object_, name); }
  std::int64_t integer(const char* name, std::int64_t otherwise) const {
    const json& found = value(name);
    if (found.is_null()) return otherwise;
    if (found.is_number_unsigned() && found.get<std::uint64_t>() <= static_cast<std::uint64_t>(max_size)) {
      return found.get<std::int64_t>();
    }
    add(fmt::format("{} is {}, not a size", name, text_of(found)));
    return otherwise;
  }
  double number(const char* name, double otherwise) const { return get(name, otherwise, &json::is_number, "a number"); }
  bool flag(const char* name, bool otherwise) const { return get(name, otherwise, &json::is_boolean, "true or false"); }
  std::string text(const char* name, std::string otherwise) const {
    return get(name, std::move(otherwise), &json::is_string, "a text");
  }
  /// Records a problem unless the setting has the only supported value.
  void require(const exchange::FixedSetting& setting) const {
    const json& found = value(std::string(setting.key).c_str());
    const bool fits = found.is_null() || std::visit([&](const auto& wanted) { return found == wanted; }, setting.value);
    if (!fits) add(fmt::format("{} is {}: {}", setting.key, text_of(found), setting.reason));
  }
  Activation activation(const char* name) const {
    const std::string wanted = text(name, "");
    for (const auto& [known, activation] : huggingface_activations) {
      if (wanted == known) return activation;
    }
    add(fmt::format("{} is '{}': supported are gelu_new, gelu_pytorch_tanh, gelu and relu2", name, shortened(wanted)));
    return Activation::gelu_tanh;
  }
  /// Returns the value of a field under `name`, which must be present.
  model::FieldValue value_of(const model::Field& field, const char* name, const ModelConfig& config) const {
    if (field.attribute == "gelu") return static_cast<std::int64_t>(activation(name));
    return std::visit(
        [&](const auto& otherwise) -> model::FieldValue {
          using T = std::decay_t<decltype(otherwise)>;
          if constexpr (std::is_same_v<T, bool>) return flag(name, otherwise);
          if constexpr (std::is_same_v<T, double>) return number(name, otherwise);
          if constexpr (std::is_same_v<T, std::int64_t>) {
            if (field.names.empty()) return integer(name, otherwise);
            const std::string word = text(name, "");
            if (const auto index = field.index_of(word)) return *index;
            add(fmt::format("{} is '{}': there are {}", name, shortened(word), field.names_text()));
          }
          return otherwise;
        },
        field.get(config));
  }
  void add(std::string problem) const { problems_.push_back(std::move(problem)); }

 private:
  template <class T>
  T get(const char* name, T otherwise, bool (json::*is)() const noexcept, const char* expected) const {
    const json& found = value(name);
    if (found.is_null()) return otherwise;
    if ((found.*is)()) return found.get<T>();
    add(fmt::format("{} is {}, not {}", name, text_of(found), expected));
    return otherwise;
  }

  const json& object_;
  std::vector<std::string>& problems_;
};

/// Reads the fields whose keys are in the table.
void read_fields(const Settings& settings, const ModelClass& model_class, ModelConfig& config) {
  for (const model::Field& field : model::fields()) {
    const std::string key(exchange::config_key(field, model_class));
    if (key.find('.') != key.npos || key.empty() || !settings.has(key.c_str())) continue;
    field.set(config, settings.value_of(field, key.c_str(), config));
  }
  if (model_class.ffn_follows_hidden && !settings.has(std::string(config_key("ffn_hidden", model_class)).c_str())) {
    config.ffn_hidden = 4 * config.hidden;
  }
  if (config.query_groups == config.heads) config.query_groups = 0;
}

/// Returns the reason, if there is a special one, why a kind of rotary positions is not supported.
const char* reason_against(const std::string& kind) {
  return kind == "longrope" || kind == "su"
             ? "; LongRoPE's factors for each frequency, which depend on the length of the text, are not supported"
             : "";
}

/// Reads the frequencies of rotary positions: rope_theta and rope_scaling in older files, rope_parameters in newer
/// ones.
void read_rotary(const Settings& settings, const json& file, HuggingFaceModel& model,
                 std::vector<std::string>& problems) {
  ModelConfig& config = model.config;
  config.rotary_base = settings.number("rope_theta", 10000);
  static const json none = json::object();
  const json* object = &none;
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (!settings.has(name)) continue;
    if (!file.at(name).is_object()) return settings.add(fmt::format("{} is not an object", name));
    object = &file.at(name);
  }
  const Settings rotary(*object, problems);
  config.rotary_base = rotary.number("rope_theta", config.rotary_base);
  config.rotary_percent = rotary.number("partial_rotary_factor", settings.number("partial_rotary_factor", 1));
  if (config.rotary_percent != 1 && config_key("rotary_percent", *model.model_class).empty()) {
    settings.add("partial_rotary_factor is not 1: this class rotates all channels of a head");
  }
  const std::string kind = rotary.text("rope_type", rotary.text("type", "default"));
  RotaryScaling& scaling = config.rotary_scaling;
  if (kind == "default") return;
  if (config_key("rotary_scaling", *model.model_class).empty()) {
    return settings.add(fmt::format("rope_type is '{}': {} is supported with 'default' alone{}", shortened(kind),
                                    model.model_class->name, reason_against(kind)));
  }
  if (kind == "linear") {
    scaling.interpolation = rotary.number("factor", 1);
    return;
  }
  scaling.factor = rotary.number("factor", 1);
  scaling.positions = rotary.integer("original_max_position_embeddings", config.max_positions);
  if (kind == "llama3") {
    scaling.kind = RotaryScalingKind::llama3;
    scaling.slow_turns = rotary.number("low_freq_factor", 1);
    scaling.fast_turns = rotary.number("high_freq_factor", 4);
    return;
  }
  if (kind != "yarn") {
    return settings.add(fmt::format("rope_type is '{}': supported are default, linear, llama3 and yarn{}",
                                    shortened(kind), reason_against(kind)));
  }
  scaling.kind = RotaryScalingKind::yarn;
  scaling.slow_turns = rotary.number("beta_slow", 1);
  scaling.fast_turns = rotary.number("beta_fast", 32);
  rotary.require({"truncate", true, "only rounded ranges of channels are supported"});
  const double mscale = rotary.number("mscale", 0), all = rotary.number("mscale_all_dim", 0);
  if (rotary.has("attention_factor")) {
    // Any factor m equals 0.1 x ln(factor) + 1 for x = (m - 1) / (0.1 ln(factor)).
    const double logarithm = 0.1 * std::log(scaling.factor);
    const double magnitude = rotary.number("attention_factor", 1);
    scaling.mscale = logarithm > 0 ? (magnitude - 1) / logarithm : 1;
    if (logarithm <= 0 && magnitude != 1) settings.add("attention_factor needs a factor above 1");
  } else if (mscale != 0 && all != 0) {
    scaling.mscale = mscale;
    scaling.mscale_all_dim = all;
  }
}

/// Reads the settings of attention and of its linear layers' biases.
void read_attention(const Settings& settings, const json& file, HuggingFaceModel& model,
                    std::vector<std::string>& problems) {
  ModelConfig& config = model.config;
  if (config.position_embedding == model::PositionEmbedding::rope) {
    read_rotary(settings, file, model, problems);
    if (settings.flag("rope_interleave", settings.flag("rope_interleaved", false))) {
      model.rotary = exchange::RotaryLayout::interleaved;
    }
    const json& types = settings.value("layer_types");
    if (!std::ranges::all_of(types, [](const json& type) { return type == "full_attention"; })) {
      settings.add("layer_types has layers without full attention");
    }
  }
  if (!config_key("window", *model.model_class).empty() && file.contains("sliding_window")) {
    // The window counts the position itself; null is none.
    config.window.left = settings.integer("sliding_window", 0) - 1;
    if (settings.has("sliding_window") && config.window.left < 0) {
      settings.add("sliding_window is 0: a position attends at least to itself");
    }
  }
  if (model.model_class->has_mlp_bias && settings.flag("mlp_bias", false) != config.linear_bias) {
    settings.add("attention_bias and mlp_bias differ: either all linear layers have biases, or none");
  }
}

/// Reads the number of classes or choices of a task.
void read_task(const Settings& settings, ModelConfig& config) {
  if (config.output == model::ModelOutput::classes) {
    const json& labels = settings.value("id2label");
    config.classes = labels.is_object() ? static_cast<std::int64_t>(labels.size()) : settings.integer("num_labels", 2);
    const std::string problem = settings.text("problem_type", "single_label_classification");
    if (problem != "single_label_classification") {
      settings.add(
          fmt::format("problem_type is '{}': only one correct class per sample is supported", shortened(problem)));
    }
  }
  if (config.output == model::ModelOutput::choices) config.classes = settings.integer("num_choices", 4);
}

std::optional<std::int64_t> end_of_text_of(const json& file) {
  const json& found = json_member(file, "eos_token_id");
  const json& value = found.is_array() && !found.empty() ? found[0] : found;
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > 0x7fffffffu) return std::nullopt;
  return value.get<std::int64_t>();
}

}  // namespace

HuggingFaceModel parse_config_json(const std::string& text, const std::string& path) {
  const json file = parse_json(text, path, max_config_depth);
  const json& classes = json_member(file, "architectures");
  TRIREME_CHECK(classes.is_array() && classes.size() == 1 && classes[0].is_string(), DataError,
                "{} does not name the one class of its model under 'architectures'; there are: {}", path,
                exchange::model_class_names());
  HuggingFaceModel model;
  try {
    model.model_class = &exchange::model_class_from(classes[0].get<std::string>());
  } catch (const DataError& error) {
    throw DataError("{}: {}", path, error.what());
  }
  std::vector<std::string> problems;
  const Settings settings(file, problems);
  for (const char* name : {"quantization_config", "compression_config"}) {
    if (settings.has(name))
      settings.add(fmt::format("{}: quantized weights are not supported; use the original model", name));
  }
  model.config = exchange::class_defaults(*model.model_class);
  read_fields(settings, *model.model_class, model.config);
  for (const exchange::FixedSetting& setting : model.model_class->fixed) settings.require(setting);
  if (model.config.gated && settings.text("hidden_act", "silu") != "silu") {
    settings.add("hidden_act is not silu: only SwiGLU is supported");
  }
  read_attention(settings, file, model, problems);
  read_task(settings, model.config);
  if (problems.empty()) {
    try {
      model::validate(model.config);
    } catch (const ConfigError& error) {
      problems.emplace_back(error.what());
    }
  }
  TRIREME_CHECK(problems.empty(), DataError, "{} describes a model that cannot be imported:\n  {}", path,
                fmt::join(problems, "\n  "));
  model.end_of_text = end_of_text_of(file);
  return model;
}

HuggingFaceModel read_config_json(const std::string& path) {
  return parse_config_json(read_whole_file(path, max_config_bytes, Symlinks::follow), path);
}

namespace {

using nlohmann::ordered_json;

std::string_view activation_name(Activation activation, const ModelClass& model_class) {
  if (activation == Activation::gelu_tanh) return model_class.tanh_gelu;
  for (const auto& [name, value] : huggingface_activations) {
    if (value == activation) return name;
  }
  return "gelu";
}

/// Writes both forms of the frequencies: rope_theta and rope_scaling of transformers 4, rope_parameters of 5.
void put_rotary(ordered_json& file, const ModelConfig& config, const ModelClass& model_class) {
  ordered_json scaling{{"rope_type", "default"}};
  const RotaryScaling& ours = config.rotary_scaling;
  if (ours.kind != RotaryScalingKind::none) {
    const bool yarn = ours.kind == RotaryScalingKind::yarn;
    scaling = {{"rope_type", yarn ? "yarn" : "llama3"},
               {"factor", ours.factor},
               {yarn ? "beta_slow" : "low_freq_factor", ours.slow_turns},
               {yarn ? "beta_fast" : "high_freq_factor", ours.fast_turns},
               {"original_max_position_embeddings", ours.positions}};
    if (yarn && ours.mscale != 0 && ours.mscale_all_dim != 0) {
      scaling["mscale"] = ours.mscale;
      scaling["mscale_all_dim"] = ours.mscale_all_dim;
    } else if (yarn && (ours.mscale != 1 || ours.mscale_all_dim != 0)) {
      const auto magnitude = [&](double mscale) { return 0.1 * mscale * std::log(ours.factor) + 1; };
      scaling["attention_factor"] = magnitude(ours.mscale) / magnitude(ours.mscale_all_dim);
    }
  }
  if (ours.interpolation != 1) scaling = {{"rope_type", "linear"}, {"factor", ours.interpolation}};
  file["rope_theta"] = config.rotary_base;
  file["rope_scaling"] = scaling.size() == 1 ? ordered_json() : scaling;
  scaling["rope_theta"] = config.rotary_base;
  if (!config_key("rotary_percent", model_class).empty()) {
    file["partial_rotary_factor"] = scaling["partial_rotary_factor"] = config.rotary_percent;
  }
  file["rope_parameters"] = scaling;
}

/// Writes the fields whose keys are in the table.
void put_fields(ordered_json& file, const ModelConfig& config, const ModelClass& model_class) {
  const ModelConfig resolved = model::resolved(config);
  for (const model::Field& field : model::fields()) {
    const std::string key(exchange::config_key(field, model_class));
    if (key.empty() || key.find('.') != key.npos) continue;
    if (field.attribute == "gelu") {
      file[key] = activation_name(config.activation, model_class);
    } else if (!field.names.empty()) {
      file[key] = field.text(resolved);
    } else {
      std::visit([&](const auto& value) { file[key] = value; }, field.get(resolved));
    }
  }
}

/// Writes the settings of activation, attention and biases that are not fields of the table.
void put_blocks(ordered_json& file, const ModelConfig& config, const ModelClass& model_class) {
  if (config.gated) file["hidden_act"] = "silu";
  if (config.position_embedding == model::PositionEmbedding::rope) put_rotary(file, config, model_class);
  if (model_class.has_mlp_bias) file["mlp_bias"] = config.linear_bias;
  if (!config_key("window", model_class).empty()) {
    file["sliding_window"] = config.window.any() ? ordered_json(config.window.left + 1) : ordered_json();
  }
}

void put_labels(ordered_json& file, const ModelConfig& config) {
  if (config.output == model::ModelOutput::classes) {
    for (std::int64_t i = 0; i < config.classes; ++i) {
      const std::string label = fmt::format("LABEL_{}", i);
      file["id2label"][std::to_string(i)] = label;
      file["label2id"][label] = i;
    }
  }
  if (config.output == model::ModelOutput::choices) file["num_choices"] = config.classes;
}

const char* torch_name(DType dtype) {
  return dtype == DType::fp64   ? "float64"
         : dtype == DType::fp32 ? "float32"
         : dtype == DType::bf16 ? "bfloat16"
                                : "float16";
}

void put_end(ordered_json& file, const HuggingFaceModel& model) {
  if (!model.end_of_text || model.config.is_bert()) return;
  file["bos_token_id"] = *model.end_of_text;
  file["eos_token_id"] = *model.end_of_text;
}

}  // namespace

std::string config_json(const HuggingFaceModel& model, DType dtype) {
  ordered_json file;
  const ModelClass& model_class = *model.model_class;
  file["architectures"] = {model_class.name};
  file["model_type"] = model_class.type;
  put_fields(file, model.config, model_class);
  put_blocks(file, model.config, model_class);
  for (const exchange::FixedSetting& setting : model_class.fixed) {
    if (!setting.is_written) continue;
    std::visit([&](const auto& value) { file[std::string(setting.key)] = value; }, setting.value);
  }
  put_labels(file, model.config);
  put_end(file, model);
  if (!model.config.is_bert()) file["pad_token_id"] = nullptr;  // a class's default may be outside the vocabulary
  file["dtype"] = torch_name(dtype);
  return file.dump(2) + "\n";
}

std::string generation_config_json(const HuggingFaceModel& model) {
  ordered_json file = ordered_json::object();
  put_end(file, model);
  return file.dump(2) + "\n";
}

}  // namespace trireme::io
