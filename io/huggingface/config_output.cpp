#include <cmath>
#include <nlohmann/json.hpp>

#include "io/huggingface/activations.hpp"
#include "io/huggingface/config_json.hpp"
#include "src/exchange/families/family.hpp"

namespace trireme::io {
namespace {

using exchange::ConfigForm;
using exchange::ModelClass;
using model::ModelConfig;
using model::RotaryScaling;
using model::RotaryScalingKind;
using nlohmann::ordered_json;

const char* activation_name(Activation activation) {
  for (const auto& [name, value] : huggingface_activations) {
    if (value == activation) return name;
  }
  return "gelu";
}

/// Both forms of the frequencies: rope_theta and rope_scaling of transformers 4, rope_parameters of 5.
void put_rotary(ordered_json& file, const ModelConfig& config) {
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
  file["rope_parameters"] = scaling;
}

/// Writes the fields that the table has keys for.
void put_fields(ordered_json& file, const ModelConfig& config, ModelClass model_class) {
  const ModelConfig resolved = model::resolved(config);
  for (const model::Field& field : model::fields()) {
    const std::string key(exchange::config_key(field, model_class));
    if (key.empty() || key.find('.') != key.npos) continue;
    if (field.attribute == "gelu") {
      file[key] = activation_name(config.activation);
    } else if (!field.names.empty()) {
      file[key] = field.text(resolved);
    } else {
      std::visit([&](const auto& value) { file[key] = value; }, field.get(resolved));
    }
  }
}

void put_llama(ordered_json& file, const ModelConfig& config, const exchange::ClassFacts& facts) {
  file["hidden_act"] = "silu";
  put_rotary(file, config);
  if (facts.has_bias_settings) file["mlp_bias"] = config.linear_bias;
  if (facts.has_window) file["sliding_window"] = config.window.left + 1;
  if (config.qkv_bias && !config.linear_bias) file.erase("attention_bias");  // all models of the class have these
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
  if (!model.end_of_text || exchange::is_bert(model.model_class)) return;
  file["bos_token_id"] = *model.end_of_text;
  file["eos_token_id"] = *model.end_of_text;
}

}  // namespace

std::string config_json(const HuggingFaceModel& model, DType dtype) {
  ordered_json file;
  file["architectures"] = {exchange::name_of(model.model_class)};
  const exchange::ClassFacts& facts = exchange::facts_of(model.model_class);
  const ConfigForm form = exchange::config_form(model.model_class);
  file["model_type"] = facts.type;
  put_fields(file, model.config, model.model_class);
  if (form == ConfigForm::llama) put_llama(file, model.config, facts);
  for (const exchange::FixedSetting& setting : facts.fixed) {
    if (!setting.is_written) continue;
    std::visit([&](const auto& value) { file[std::string(setting.key)] = value; }, setting.value);
  }
  if (form == ConfigForm::bert) put_labels(file, model.config);
  put_end(file, model);
  file["dtype"] = torch_name(dtype);
  return file.dump(2) + "\n";
}

std::string generation_config_json(const HuggingFaceModel& model) {
  ordered_json file = ordered_json::object();
  put_end(file, model);
  return file.dump(2) + "\n";
}

}  // namespace trireme::io
