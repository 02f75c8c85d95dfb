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
    add(fmt::format("{} is '{}': supported are gelu_new, gelu_pytorch_tanh, gelu_fast, gelu, gelu_python and relu2",
                    name, shortened(wanted)));
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

/// Reads the base of layers with a window, whose frequencies are not scaled. Returns the settings of the other layers,
/// which are `settings` or a part of them.
const json& read_local_rotary(const Settings& file, const json& settings, ModelConfig& config,
                              std::vector<std::string>& problems) {
  config.rotary_base_local = file.number("rope_local_base_freq", config.rotary_base_local);
  if (const json& local = json_member(settings, "sliding_attention"); local.is_object()) {
    const Settings of_windows(local, problems);
    config.rotary_base_local = of_windows.number("rope_theta", config.rotary_base_local);
    of_windows.require(
        {"rope_type", std::string_view("default"), "frequencies of layers with a window are not scaled"});
  }
  const json& others = json_member(settings, "full_attention");
  return others.is_object() ? others : settings;
}

/// Reads the frequencies of rotary positions: rope_theta and rope_scaling in older files, rope_parameters in newer
/// ones.
void read_rotary(const Settings& settings, const json& file, HuggingFaceModel& model,
                 std::vector<std::string>& problems) {
  ModelConfig& config = model.config;
  config.rotary_base = settings.number("rope_theta", config.rotary_base);
  static const json none = json::object();
  const json* object = &none;
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (!settings.has(name)) continue;
    if (!file.at(name).is_object()) return settings.add(fmt::format("{} is not an object", name));
    object = &file.at(name);
  }
  if (!config_key("rotary_base_local", *model.model_class).empty()) {
    object = &read_local_rotary(settings, *object, config, problems);
  }
  const Settings rotary(*object, problems);
  config.rotary_base = rotary.number("rope_theta", config.rotary_base);
  config.rotary_percent =
      rotary.number("partial_rotary_factor", settings.number("partial_rotary_factor", config.rotary_percent));
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
  constexpr const char* original = "original_max_position_embeddings";
  scaling.positions = settings.integer(original, rotary.integer(original, config.max_positions));
  const bool follows_positions = kind == "yarn" && scaling.positions > 0;
  scaling.factor = rotary.number(
      "factor",
      follows_positions ? static_cast<double>(config.max_positions) / static_cast<double>(scaling.positions) : 1);
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
  if (config.latent.used && all != 0 && (mscale == 0 || rotary.has("attention_factor"))) {
    return settings.add(
        "mscale_all_dim without mscale, or with attention_factor, is not supported in latent attention");
  }
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

/// Reads the layers with a window: by their types, or in older files by the distance of those without.
void read_window_layers(const Settings& settings, const ModelClass& model_class, ModelConfig& config) {
  if (!config.window.any()) {
    config.window = {};
    return;
  }
  const int layers = std::min(config.layers, model::max_layers);
  const std::int64_t frequency = settings.integer("sliding_window_pattern", model_class.window_frequency);
  if (frequency == 0) return settings.add("sliding_window_pattern is 0: it must be at least 1");
  const json& types = settings.value("layer_types");
  if (types.is_null()) {
    config.window = model::AttentionWindow::every(config.window.left, frequency, layers);
    return;
  }
  const auto is_window = [](const json& type) { return type == "sliding_attention"; };
  const auto is_known = [&](const json& type) { return is_window(type) || type == "full_attention"; };
  if (!types.is_array() || std::ssize(types) != layers || !std::ranges::all_of(types, is_known)) {
    return settings.add(
        fmt::format("layer_types must list sliding_attention or full_attention for each of {} layers", config.layers));
  }
  std::string pattern;
  for (const json& type : types) pattern += is_window(type) ? '1' : '0';
  config.window = model::AttentionWindow::of_layers(config.window.left, pattern);
}

/// Reads the soft caps of scores and logits; null is none.
void read_soft_caps(const Settings& settings, const json& file, const ModelClass& model_class, ModelConfig& config) {
  for (const auto& [attribute, cap] :
       {std::pair{"attention_soft_cap", &config.attention_soft_cap}, {"logit_soft_cap", &config.logit_soft_cap}}) {
    std::string key(config_key(attribute, model_class));
    if (key.empty()) continue;
    key.pop_back();  // the dot
    if (file.contains(key)) *cap = settings.number(key.c_str(), 0);
  }
}

/// Returns whether an activation of transformers is SiLU.
bool is_silu(const std::string& name) { return name == "silu" || name == "swish"; }

/// Reads the activation of the gate.
void read_gate(const Settings& settings, const ModelClass& model_class, ModelConfig& config) {
  if (config_key("gate", model_class).empty()) {
    if (!is_silu(settings.text("hidden_act", "silu"))) settings.add("hidden_act is not silu: only SwiGLU is supported");
    return;
  }
  const std::string name = settings.text("hidden_activation", "gelu_pytorch_tanh");
  config.gate = is_silu(name) ? Activation::silu : Activation::gelu_tanh;
  if (!is_silu(name) && name != "gelu_pytorch_tanh") {
    settings.add(fmt::format("hidden_activation is '{}': supported are gelu_pytorch_tanh and silu", shortened(name)));
  }
}

/// Reads the settings of attention and of its linear layers' biases.
void read_attention(const Settings& settings, const json& file, HuggingFaceModel& model,
                    std::vector<std::string>& problems) {
  ModelConfig& config = model.config;
  if (config.position_embedding == model::PositionEmbedding::rope) {
    read_rotary(settings, file, model, problems);
    const bool otherwise = model.model_class->rotary == exchange::RotaryLayout::interleaved;
    model.rotary = settings.flag("rope_interleave", settings.flag("rope_interleaved", otherwise))
                       ? exchange::RotaryLayout::interleaved
                       : exchange::RotaryLayout::halves;
    const json& types = settings.value("layer_types");
    if (model.model_class->window_frequency == 0 &&
        !std::ranges::all_of(types, [](const json& type) { return type == "full_attention"; })) {
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
  if (model.model_class->window_frequency > 0) {
    read_window_layers(settings, *model.model_class, config);
    if (!config.window.any()) config.rotary_base_local = 0;  // without effect
  }
  read_soft_caps(settings, file, *model.model_class, config);
  if (model.model_class->has_mlp_bias && settings.flag("mlp_bias", false) != config.linear_bias) {
    settings.add("attention_bias and mlp_bias differ: either all linear layers have biases, or none");
  }
}

/// Reads the norms of parallel layers and the groups of queries. In the new architecture all layers are parallel.
void read_falcon(const Settings& settings, ModelConfig& config) {
  const bool is_new = settings.flag("new_decoder_architecture", false), parallel = settings.flag("parallel_attn", true);
  const std::int64_t norms = settings.integer("num_ln_in_parallel_attn", is_new ? 2 : 1);
  if (is_new && !parallel) settings.add("parallel_attn is false: layers of the new architecture are parallel");
  if (norms != 1 && (norms != 2 || !is_new)) {
    settings.add(fmt::format("num_ln_in_parallel_attn is {}: it is 1, or in the new architecture 1 or 2", norms));
  }
  config.parallel_residual = parallel;
  config.shared_norm = parallel && norms == 1;
  const bool one_group = !is_new && settings.flag("multi_query", true);
  config.query_groups = one_group ? 1 : settings.integer("num_kv_heads", config.heads);
  if (!is_new && !one_group && config.query_groups != config.heads) {
    settings.add(
        fmt::format("num_kv_heads is {}: only the new architecture has groups of queries", config.query_groups));
  }
  if (config.query_groups == config.heads) config.query_groups = 0;
}

/// Reads the settings of latent attention, dense first layers and shared experts.
void read_deepseek(const Settings& settings, const json& file, const ModelClass& model_class, ModelConfig& config) {
  if (file.contains("q_lora_rank")) config.latent.query_rank = settings.integer("q_lora_rank", 0);  // null is none
  if (const std::int64_t heads = settings.integer("num_key_value_heads", config.heads); heads != config.heads) {
    settings.add(fmt::format("num_key_value_heads is {}: each of {} heads has its own keys", heads, config.heads));
  }
  model::ExpertConfig& experts = config.experts;
  const model::ExpertConfig plain = exchange::class_defaults(model_class).experts;
  const std::int64_t shared = settings.integer("n_shared_experts", plain.shared_hidden / plain.ffn_hidden);
  experts.shared_hidden =
      std::min(shared, max_size / std::max<std::int64_t>(experts.ffn_hidden, 1)) * experts.ffn_hidden;
  const bool sigmoid = experts.score == RouterScore::sigmoid, normalised = settings.flag("norm_topk_prob", sigmoid);
  if (normalised != normalises_weights(experts)) {
    settings.add(fmt::format("norm_topk_prob is {}: only weights of several experts by sigmoid scores are normalised",
                             normalised));
  }
  const std::int64_t dense = settings.integer("first_k_dense_replace", model_class.type == "deepseek_v3" ? 3 : 0);
  const std::int64_t layers = std::min(config.layers, model::max_layers);
  if (dense >= layers) return settings.add("first_k_dense_replace leaves no layer with experts");
  experts.layers.clear();
  if (dense == 0) return;
  experts.layers =
      std::string(static_cast<std::size_t>(dense), '0') + std::string(static_cast<std::size_t>(layers - dense), '1');
}

/// Reads the experts of a class whose models have them: their number, weights and layers.
void read_experts(const Settings& settings, const ModelClass& model_class, ModelConfig& config) {
  model::ExpertConfig& experts = config.experts;
  // Versions of transformers differ in this name. Those from 5 read both.
  experts.count = settings.integer("num_experts", settings.integer("num_local_experts", experts.count));
  if (experts.count == 0) settings.add("num_experts is 0: name the class of a model without experts");
  if (!config_key("router_pre_softmax", model_class).empty()) {
    experts.pre_softmax = !settings.flag("norm_topk_prob", !experts.pre_softmax);
  }
  if (config_key("expert_layers", model_class) != "mlp_only_layers.") return;
  const std::int64_t step = settings.integer("decoder_sparse_step", 1);
  if (step == 0) return settings.add("decoder_sparse_step is 0: it must be at least 1");
  const int layers = std::min(config.layers, model::max_layers);
  std::string pattern;
  for (int layer = 1; layer <= layers; ++layer) pattern += layer % step == 0 ? '1' : '0';
  const json& dense = settings.value("mlp_only_layers");
  if (!(dense.is_null() || dense.is_array()) || !std::ranges::all_of(dense, &json::is_number_unsigned)) {
    return settings.add("mlp_only_layers is not a list of layers");
  }
  for (const json& layer : dense) {
    const auto number = layer.get<std::uint64_t>();
    if (number < pattern.size()) pattern[number] = '0';
  }
  if (pattern.find('1') == pattern.npos) settings.add("mlp_only_layers leaves no layer with experts");
  experts.layers = pattern.find('0') == pattern.npos ? "" : pattern;
}

/// Reads the probabilities of dropout under any class's keys. Without them GPT-2 and BERT have 0.1, others none.
void read_dropout(const Settings& settings, const ModelClass& model_class, ModelConfig& config) {
  const double otherwise = model_class.type == "gpt2" || model_class.type == "bert" ? 0.1 : 0;
  const auto read = [&](std::initializer_list<const char*> keys) {
    const auto key = std::ranges::find_if(keys, [&](const char* name) { return settings.has(name); });
    return key == keys.end() ? otherwise : settings.number(*key, otherwise);
  };
  config.hidden_dropout = read({"resid_pdrop", "hidden_dropout_prob", "hidden_dropout", "residual_dropout"});
  config.attention_dropout = read({"attn_pdrop", "attention_probs_dropout_prob", "attention_dropout"});
}

/// Reads the number of classes or choices of a task.
void read_task(const Settings& settings, ModelConfig& config) {
  if (config.output == model::ModelOutput::classes) {
    const json& labels = settings.value("id2label");
    config.classes = labels.is_object() ? static_cast<std::int64_t>(labels.size()) : settings.integer("num_labels", 2);
    const std::string supported = config.classes == 1 ? "regression" : "single_label_classification";
    const std::string problem = settings.text("problem_type", supported);
    if (problem != supported) {
      settings.add(fmt::format("problem_type is '{}': with {} only '{}' is supported", shortened(problem),
                               counted(config.classes, "label"), supported));
    }
  }
  if (config.output == model::ModelOutput::choices) config.classes = settings.integer("num_choices", 4);
}

/// Returns the names of the classes, "id2label".
std::vector<std::string> labels_of(const json& file, const ModelConfig& config) {
  std::vector<std::string> labels;
  const json& names = json_member(file, "id2label");
  if (config.output != model::ModelOutput::classes || !names.is_object()) return labels;
  for (std::int64_t i = 0; i < config.classes; ++i) {
    const json& name = json_member(names, std::to_string(i).c_str());
    if (!name.is_string()) return {};
    labels.push_back(name.get<std::string>());
  }
  return labels;
}

/// Reads the special ids; transformers has -1 and others outside the vocabulary where there is none.
void read_special_ids(const json& file, HuggingFaceModel& model) {
  const auto id_of = [](const json& value) -> std::optional<std::int64_t> {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > 0x7fffffffu) return std::nullopt;
    return value.get<std::int64_t>();
  };
  model.bos = id_of(json_member(file, "bos_token_id"));
  model.pad = id_of(json_member(file, "pad_token_id"));
  const json& ends = json_member(file, "eos_token_id");
  for (const json& end : ends.is_array() ? ends : json::array({ends})) {
    if (const auto id = id_of(end)) model.ends.push_back(*id);
  }
}

}  // namespace

HuggingFaceModel parse_config_json(const std::string& text, const std::string& path) {
  json file = parse_json(text, path, max_config_depth);
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
  for (const auto& [older, now] : model.model_class->older_keys) {
    const json value = json_member(file, std::string(older).c_str());
    if (!value.is_null() && !file.contains(now)) file[std::string(now)] = value;
  }
  std::vector<std::string> problems;
  const Settings settings(file, problems);
  for (const char* name : {"quantization_config", "compression_config"}) {
    if (settings.has(name))
      settings.add(fmt::format("{}: quantized weights are not supported; use the original model", name));
  }
  model.config = exchange::class_defaults(*model.model_class);
  read_fields(settings, *model.model_class, model.config);
  if (model.model_class->type == "falcon" && settings.flag("alibi", false)) {
    model.config.position_embedding = model::PositionEmbedding::alibi;
    model.config.scaled_alibi = true;
  }
  for (const exchange::FixedSetting& setting : model.model_class->fixed) settings.require(setting);
  if (model.config.gated) read_gate(settings, *model.model_class, model.config);
  read_attention(settings, file, model, problems);
  if (model.model_class->type == "falcon") read_falcon(settings, model.config);
  if (exchange::class_defaults(*model.model_class).experts.count > 0) {
    read_experts(settings, *model.model_class, model.config);
  }
  if (model.config.latent.used) read_deepseek(settings, file, *model.model_class, model.config);
  if (!config_key("mtp_depths", *model.model_class).empty()) {
    model.ahead_depths = settings.integer("num_nextn_predict_layers", 0);
  }
  read_dropout(settings, *model.model_class, model.config);
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
  read_special_ids(file, model);
  model.labels = labels_of(file, model.config);
  return model;
}

HuggingFaceModel read_config_json(const std::string& path) {
  return parse_config_json(read_whole_file(path, max_config_bytes, Symlinks::follow), path);
}

}  // namespace trireme::io
