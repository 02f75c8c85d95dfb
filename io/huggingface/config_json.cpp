#include "io/huggingface/config_json.hpp"

#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "io/huggingface/activations.hpp"
#include "io/json/json_text.hpp"
#include "io/posix/regular_file.hpp"
#include "src/base/check.hpp"
#include "src/base/shortened.hpp"

namespace trireme::io {
namespace {

using exchange::ModelClass;
using model::ModelConfig;
using model::RotaryScaling;
using model::RotaryScalingKind;
using nlohmann::json;

constexpr std::int64_t max_file_bytes = std::int64_t{16} << 20;
constexpr int max_depth = 16;
constexpr std::int64_t max_size = std::int64_t{1} << 40;  // a model's shape is checked later

std::string text_of(const json& value) { return shortened(value.dump(-1, ' ', true, json::error_handler_t::replace)); }

/// Settings of an object, with defaults. Collects what does not fit.
class Settings {
 public:
  Settings(const json& object, std::vector<std::string>& problems) : object_(object), problems_(problems) {}

  bool has(const char* name) const { return !value(name).is_null(); }
  const json& value(const char* name) const {
    static const json null;
    const auto found = object_.find(name);
    return found == object_.end() ? null : *found;
  }
  std::int64_t integer(const char* name, std::int64_t otherwise) const {
    const json& found = value(name);
    if (found.is_null()) return otherwise;
    if (found.is_number_unsigned() && found.get<std::uint64_t>() <= static_cast<std::uint64_t>(max_size)) {
      return found.get<std::int64_t>();
    }
    add(fmt::format("{} is {}, not a size", name, text_of(found)));
    return otherwise;
  }
  double number(const char* name, double otherwise) const {
    const json& found = value(name);
    if (found.is_null()) return otherwise;
    if (found.is_number()) return found.get<double>();
    add(fmt::format("{} is {}, not a number", name, text_of(found)));
    return otherwise;
  }
  bool flag(const char* name, bool otherwise) const {
    const json& found = value(name);
    if (found.is_null()) return otherwise;
    if (found.is_boolean()) return found.get<bool>();
    add(fmt::format("{} is {}, neither true nor false", name, text_of(found)));
    return otherwise;
  }
  std::string text(const char* name, const char* otherwise) const {
    const json& found = value(name);
    if (found.is_null()) return otherwise;
    if (found.is_string()) return found.get<std::string>();
    add(fmt::format("{} is {}, not a text", name, text_of(found)));
    return otherwise;
  }
  /// A flag that must have one value.
  void require(const char* name, bool wanted, bool otherwise, const char* reason) const {
    if (flag(name, otherwise) != wanted) add(fmt::format("{} is {}: {}", name, !wanted, reason));
  }
  Activation activation(const char* name, const char* otherwise) const {
    const std::string wanted = text(name, otherwise);
    for (const auto& [known, activation] : huggingface_activations) {
      if (wanted == known) return activation;
    }
    add(fmt::format("{} is '{}': there are gelu_new, gelu_pytorch_tanh, gelu and relu2", name, shortened(wanted)));
    return Activation::gelu_tanh;
  }
  void add(std::string problem) const { problems_.push_back(std::move(problem)); }

 private:
  const json& object_;
  std::vector<std::string>& problems_;
};

void read_gpt2(const Settings& settings, ModelConfig& config) {
  config.vocabulary = settings.integer("vocab_size", 50257);
  config.max_positions = settings.integer("n_positions", 1024);
  config.hidden = settings.integer("n_embd", 768);
  config.layers = static_cast<int>(std::min<std::int64_t>(settings.integer("n_layer", 12), model::max_layers + 1));
  config.heads = settings.integer("n_head", 12);
  config.ffn_hidden = settings.integer("n_inner", 4 * config.hidden);
  config.activation = settings.activation("activation_function", "gelu_new");
  config.norm_epsilon = settings.number("layer_norm_epsilon", 1e-5);
  config.tied_output = settings.flag("tie_word_embeddings", true);
  settings.require("scale_attn_weights", true, true, "scores are divided by the root of the head size here");
  settings.require("scale_attn_by_inverse_layer_idx", false, false, "scores have the same scale in all layers here");
  settings.require("add_cross_attention", false, false, "there is no cross-attention here");
}

/// The frequencies of rotary positions: of older files rope_theta and rope_scaling, of newer ones rope_parameters.
void read_rotary(const Settings& settings, const json& file, ModelConfig& config, std::vector<std::string>& problems) {
  config.rotary_base = settings.number("rope_theta", 10000);
  static const json none = json::object();
  const json* object = &none;
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (!settings.has(name)) continue;
    if (!file.at(name).is_object()) return settings.add(fmt::format("{} is no object", name));
    object = &file.at(name);
  }
  const Settings rotary(*object, problems);
  config.rotary_base = rotary.number("rope_theta", config.rotary_base);
  if (rotary.number("partial_rotary_factor", settings.number("partial_rotary_factor", 1)) != 1) {
    settings.add("partial_rotary_factor is not 1: this class rotates all channels of a head");
  }
  const std::string kind = rotary.text("rope_type", rotary.text("type", "default").c_str());
  RotaryScaling& scaling = config.rotary_scaling;
  if (kind == "default") return;
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
    return settings.add(
        fmt::format("rope_type is '{}': positions are scaled as linear, llama3 or yarn does here", kind));
  }
  scaling.kind = RotaryScalingKind::yarn;
  scaling.slow_turns = rotary.number("beta_slow", 1);
  scaling.fast_turns = rotary.number("beta_fast", 32);
  rotary.require("truncate", true, true, "the pairs of channels are rounded here");
  const double mscale = rotary.number("mscale", 0), all = rotary.number("mscale_all_dim", 0);
  if (rotary.has("attention_factor")) {
    // Any factor m is (0.1 x ln factor + 1) of x = (m - 1) / (0.1 ln factor).
    const double logarithm = 0.1 * std::log(scaling.factor);
    const double magnitude = rotary.number("attention_factor", 1);
    scaling.mscale = logarithm > 0 ? (magnitude - 1) / logarithm : 1;
    if (logarithm <= 0 && magnitude != 1) settings.add("attention_factor needs a factor above 1");
  } else if (mscale != 0 && all != 0) {
    scaling.mscale = mscale;
    scaling.mscale_all_dim = all;
  }
}

void read_llama(const Settings& settings, const json& file, ModelClass model_class, HuggingFaceModel& model,
                std::vector<std::string>& problems) {
  const bool is_llama = model_class == ModelClass::llama, is_qwen3 = model_class == ModelClass::qwen3;
  ModelConfig& config = model.config;
  config.normalization = model::Normalization::rms_norm;
  config.position_embedding = model::PositionEmbedding::rope;
  config.swiglu = true;
  config.vocabulary = settings.integer("vocab_size", is_llama ? 32000 : 151936);
  config.hidden = settings.integer("hidden_size", 4096);
  config.ffn_hidden = settings.integer("intermediate_size", is_llama ? 11008 : 22016);
  config.layers =
      static_cast<int>(std::min<std::int64_t>(settings.integer("num_hidden_layers", 32), model::max_layers + 1));
  config.heads = settings.integer("num_attention_heads", 32);
  const std::int64_t groups = settings.integer("num_key_value_heads", is_llama ? config.heads : 32);
  config.query_groups = groups == config.heads ? 0 : groups;
  config.kv_channels = settings.integer("head_dim", is_qwen3 ? 128 : 0);
  config.max_positions = settings.integer("max_position_embeddings", is_llama ? 2048 : 32768);
  config.norm_epsilon = settings.number("rms_norm_eps", 1e-6);
  config.tied_output = settings.flag("tie_word_embeddings", false);
  if (settings.text("hidden_act", "silu") != "silu") settings.add("hidden_act is not silu, which gates SwiGLU");
  read_rotary(settings, file, config, problems);

  config.linear_bias = false;
  const char* const biases = "attention_bias";
  if (is_llama) {
    config.linear_bias = settings.flag(biases, false);
    if (settings.flag("mlp_bias", false) != config.linear_bias) {
      settings.add("attention_bias and mlp_bias differ: all linear layers have biases here, or none of these");
    }
    if (settings.flag("rope_interleave", settings.flag("rope_interleaved", false))) {
      model.rotary = exchange::RotaryLayout::interleaved;
    }
    return;
  }
  config.qkv_bias = !is_qwen3;
  config.qk_norm = is_qwen3;
  if (is_qwen3) settings.require(biases, false, false, "biases of attention do not go with its norms here");
  settings.require("use_sliding_window", false, false, "a position attends to all before it here");
  for (const json& type : settings.value("layer_types")) {
    if (type != "full_attention") return settings.add("layer_types has layers without full attention");
  }
}

void read_bert(const Settings& settings, ModelClass model_class, ModelConfig& config) {
  config.family = model::ModelFamily::bert;
  config.norm_placement = model::NormPlacement::post;
  config.vocabulary = settings.integer("vocab_size", 30522);
  config.hidden = settings.integer("hidden_size", 768);
  config.layers =
      static_cast<int>(std::min<std::int64_t>(settings.integer("num_hidden_layers", 12), model::max_layers + 1));
  config.heads = settings.integer("num_attention_heads", 12);
  config.ffn_hidden = settings.integer("intermediate_size", 3072);
  config.max_positions = settings.integer("max_position_embeddings", 512);
  config.activation = settings.activation("hidden_act", "gelu");
  config.norm_epsilon = settings.number("layer_norm_eps", 1e-12);
  if (settings.integer("type_vocab_size", 2) != 2) settings.add("type_vocab_size is not 2, the two segments' types");
  if (settings.text("position_embedding_type", "absolute") != "absolute") {
    settings.add("position_embedding_type is not absolute, a learned table");
  }
  settings.require("is_decoder", false, false, "a BERT sees the whole sequence here");
  settings.require("tie_word_embeddings", true, true, "the output of a BERT is tied to its token embedding here");
  if (model_class == ModelClass::bert_pretraining) return;
  config.output = model_class == ModelClass::bert_classes   ? model::ModelOutput::classes
                  : model_class == ModelClass::bert_choices ? model::ModelOutput::choices
                                                            : model::ModelOutput::spans;
  if (model_class == ModelClass::bert_classes) {
    const json& labels = settings.value("id2label");
    config.classes = labels.is_object() ? static_cast<std::int64_t>(labels.size()) : settings.integer("num_labels", 2);
    const std::string problem = settings.text("problem_type", "single_label_classification");
    if (problem != "single_label_classification") {
      settings.add(fmt::format("problem_type is '{}': one class of a sample is right here", shortened(problem)));
    }
  }
  // The class itself takes any number of choices; RACE's questions have four.
  if (model_class == ModelClass::bert_choices) config.classes = settings.integer("num_choices", 4);
}

std::optional<std::int64_t> end_of_text_of(const json& file) {
  const auto found = file.find("eos_token_id");
  if (found == file.end()) return std::nullopt;
  const json& value = found->is_array() && !found->empty() ? (*found)[0] : *found;
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > 0x7fffffffu) return std::nullopt;
  return value.get<std::int64_t>();
}

}  // namespace

HuggingFaceModel parse_config_json(const std::string& text, const std::string& path) {
  json file;
  try {
    file = json::parse(text, [&](int depth, json::parse_event_t, json&) {
      TRIREME_CHECK(depth <= max_depth, DataError, "{} nests deeper than {} levels", path, max_depth);
      return true;
    });
  } catch (const json::exception& error) {
    throw DataError("{} is not JSON: {}", path, json_fault(error.what()));
  }
  const auto classes = file.is_object() ? file.find("architectures") : file.end();
  TRIREME_CHECK(file.is_object() && classes != file.end() && classes->is_array() && classes->size() == 1 &&
                    (*classes)[0].is_string(),
                DataError, "{} does not name the one class of its model under 'architectures'; there are: {}", path,
                exchange::model_class_names());
  HuggingFaceModel model;
  try {
    model.model_class = exchange::model_class_from((*classes)[0].get<std::string>());
  } catch (const DataError& error) {
    throw DataError("{}: {}", path, error.what());
  }
  std::vector<std::string> problems;
  const Settings settings(file, problems);
  for (const char* name : {"quantization_config", "compression_config"}) {
    if (settings.has(name))
      settings.add(fmt::format("{}: quantized weights are not read; take the original model", name));
  }
  if (exchange::is_bert(model.model_class)) {
    read_bert(settings, model.model_class, model.config);
  } else if (model.model_class == ModelClass::gpt2) {
    read_gpt2(settings, model.config);
  } else {
    read_llama(settings, file, model.model_class, model, problems);
  }
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
  return parse_config_json(read_whole_file(path, max_file_bytes, Symlinks::follow), path);
}

}  // namespace trireme::io
