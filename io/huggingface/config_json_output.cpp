#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "io/huggingface/config_json.hpp"

namespace trireme::io {
namespace {

using exchange::ModelClass;
using model::ModelConfig;
using model::RotaryScaling;
using model::RotaryScalingKind;
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
  if (config_key("rotary_base_local", model_class).empty()) {
    file["rope_parameters"] = scaling;
    return;
  }
  const double local = config.rotary_base_local == 0 ? config.rotary_base : config.rotary_base_local;
  file["rope_local_base_freq"] = local;
  file["rope_parameters"] = {{"full_attention", scaling},
                             {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", local}}}};
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
  if (config.gated) {
    const bool is_fixed = config_key("gate", model_class).empty();
    file[is_fixed ? "hidden_act" : "hidden_activation"] =
        config.gate == Activation::silu ? "silu" : "gelu_pytorch_tanh";
  }
  if (config.position_embedding == model::PositionEmbedding::rope) put_rotary(file, config, model_class);
  if (model_class.has_mlp_bias) file["mlp_bias"] = config.linear_bias;
  if (!config_key("window", model_class).empty()) {
    // Where each layer's type says whether it has a window, transformers needs a size even without any.
    const model::AttentionWindow window =
        config.window.any() || model_class.window_frequency == 0 ? config.window : class_defaults(model_class).window;
    file["sliding_window"] = window.any() ? ordered_json(window.left + 1) : ordered_json();
  }
  if (model_class.window_frequency > 0) {
    ordered_json& types = file["layer_types"] = ordered_json::array();
    for (int layer = 0; layer < config.layers; ++layer) {
      types.push_back(config.window.of(layer) < 0 ? "full_attention" : "sliding_attention");
    }
  }
  for (const auto& [attribute, cap] :
       {std::pair{"attention_soft_cap", config.attention_soft_cap}, {"logit_soft_cap", config.logit_soft_cap}}) {
    std::string key(config_key(attribute, model_class));
    if (key.empty()) continue;
    key.pop_back();  // the dot
    file[key] = cap > 0 ? ordered_json(cap) : ordered_json();
  }
}

/// Writes the norms of parallel layers and the groups of queries.
void put_falcon(ordered_json& file, const ModelConfig& config) {
  const bool plain_heads = config.kv_heads() == 1 || config.kv_heads() == config.heads;
  const bool is_new = config.parallel_residual && !(config.shared_norm && plain_heads);
  file["new_decoder_architecture"] = is_new;
  file["parallel_attn"] = config.parallel_residual;
  file["alibi"] = config.scaled_alibi;
  file["num_ln_in_parallel_attn"] = is_new ? ordered_json(config.shared_norm ? 1 : 2) : ordered_json();
  file["multi_query"] = config.kv_heads() == 1;
  file["num_kv_heads"] = is_new ? config.kv_heads() : config.heads;
}

/// Writes the settings of latent attention, dense first layers and shared experts.
void put_deepseek(ordered_json& file, const ModelConfig& config) {
  const model::ExpertConfig& experts = config.experts;
  const std::int64_t rank = config.latent.query_rank;
  file["num_key_value_heads"] = config.heads;
  file["q_lora_rank"] = rank == 0 ? ordered_json() : ordered_json(rank);
  file["norm_topk_prob"] = normalises_weights(experts);
  file["n_shared_experts"] = experts.shared_hidden / config.expert_ffn_hidden();
  file["first_k_dense_replace"] = std::ranges::count(experts.layers, '0');
}

/// Writes the weights and layers of experts.
void put_experts(ordered_json& file, const ModelConfig& config, const ModelClass& model_class) {
  if (!config_key("router_pre_softmax", model_class).empty()) file["norm_topk_prob"] = !config.experts.pre_softmax;
  if (config_key("expert_layers", model_class) != "mlp_only_layers.") return;
  file["decoder_sparse_step"] = 1;
  ordered_json& dense = file["mlp_only_layers"] = ordered_json::array();
  for (int layer = 0; layer < config.layers; ++layer) {
    if (!config.experts.in_layer(layer)) dense.push_back(layer);
  }
}

void put_labels(ordered_json& file, const HuggingFaceModel& model) {
  const ModelConfig& config = model.config;
  const bool has_names = std::ssize(model.labels) == config.classes;
  if (config.output == model::ModelOutput::classes) {
    if (config.classes == 1) file["problem_type"] = "regression";
    for (std::int64_t i = 0; i < config.classes; ++i) {
      const std::string label = has_names ? model.labels[static_cast<std::size_t>(i)] : fmt::format("LABEL_{}", i);
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

/// Writes the special ids of a model. A class's own defaults may be outside the vocabulary, so null stands for none.
void put_special_ids(ordered_json& file, const HuggingFaceModel& model) {
  const auto json_of = [](std::optional<std::int64_t> id) { return id ? ordered_json(*id) : ordered_json(); };
  if (!model.config.is_bert()) {
    file["bos_token_id"] = json_of(model.bos);
    file["eos_token_id"] = model.ends.size() == 1 ? ordered_json(model.ends.front())
                           : model.ends.empty()   ? ordered_json()
                                                  : ordered_json(model.ends);
  }
  if (!model.config.is_bert() || model.pad) file["pad_token_id"] = json_of(model.pad);
}

}  // namespace

std::string config_json(const HuggingFaceModel& model, DType dtype) {
  ordered_json file;
  const ModelClass& model_class = *model.model_class;
  file["architectures"] = {model_class.name};
  file["model_type"] = model_class.type;
  put_fields(file, model.config, model_class);
  put_blocks(file, model.config, model_class);
  put_experts(file, model.config, model_class);
  if (model.config.latent.used) put_deepseek(file, model.config);
  if (!config_key("mtp_depths", model_class).empty()) {
    file["num_nextn_predict_layers"] = model.config.all_layers() - model.config.layers;
  }
  if (model_class.type == "falcon") put_falcon(file, model.config);
  for (const exchange::FixedSetting& setting : model_class.fixed) {
    if (!setting.is_written) continue;
    std::visit([&](const auto& value) { file[std::string(setting.key)] = value; }, setting.value);
  }
  put_labels(file, model);
  put_special_ids(file, model);
  file["dtype"] = torch_name(dtype);
  return file.dump(2) + "\n";
}

std::string generation_config_json(const HuggingFaceModel& model) {
  ordered_json file = ordered_json::object();
  put_special_ids(file, model);
  for (const char* name : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (file.contains(name) && file[name].is_null()) file.erase(name);
  }
  return file.dump(2) + "\n";
}

}  // namespace trireme::io
