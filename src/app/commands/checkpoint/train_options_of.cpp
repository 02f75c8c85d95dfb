#include "src/app/commands/checkpoint/import_input.hpp"

namespace trireme::app {

std::string train_options_of(const model::ModelConfig& config) {
  std::string text;
  const auto flag = [&](bool given, const char* name) {
    if (given) text += fmt::format("{}--{}", text.empty() ? "" : " ", name);
  };
  const auto value = [&](bool given, const char* name, const auto& number) {
    flag(given, name);
    if (given) text += fmt::format(" {}", number);
  };
  value(config.is_bert(), "model-type", "bert");
  value(true, "num-layers", config.layers);
  value(true, "hidden-size", config.hidden);
  value(true, "num-attention-heads", config.heads);
  value(config.attention_columns() != config.hidden, "kv-channels", config.head_dim());
  value(true, "ffn-hidden-size", config.ffn_hidden);
  value(true, "max-position-embeddings", config.max_positions);
  value(true, "vocab-size", config.vocabulary);
  value(true, "layernorm-epsilon", config.norm_epsilon);
  flag(config.kv_heads() != config.heads, "group-query-attention");
  value(config.kv_heads() != config.heads, "num-query-groups", config.kv_heads());
  value(config.normalization == model::Normalization::rms_norm, "normalization", "RMSNorm");
  flag(config.norm_1p, "apply-layernorm-1p");
  flag(config.swiglu, "swiglu");
  value(!config.swiglu && config.activation == Activation::gelu_erf, "gelu", "erf");
  flag(!config.swiglu && config.activation == Activation::squared_relu, "squared-relu");
  flag(!config.linear_bias, "disable-bias-linear");
  flag(config.qkv_bias && !config.linear_bias, "add-qkv-bias");
  flag(config.qk_norm, "qk-layernorm");
  flag(!config.tied_output, "untie-embeddings-and-output-weights");
  flag(config.post_norm(), "apply-residual-connection-post-layernorm");
  flag(config.is_bert() && !config.binary_head, "bert-no-binary-head");
  if (config.position_embedding != model::PositionEmbedding::rope) return text;
  const model::RotaryScaling& scaling = config.rotary_scaling;
  const bool yarn = scaling.kind == model::RotaryScalingKind::yarn;
  const bool llama3 = scaling.kind == model::RotaryScalingKind::llama3;
  value(true, "position-embedding-type", yarn ? "yarn" : "rope");
  value(true, "rotary-base", config.rotary_base);
  value(config.rotary_percent != 1, "rotary-percent", config.rotary_percent);
  flag(llama3, "use-rope-scaling");
  value(llama3, "rope-scaling-factor", scaling.factor);
  value(yarn, "yarn-rotary-scaling-factor", scaling.factor);
  value(yarn, "yarn-original-max-position-embeddings", scaling.positions);
  value(yarn, "yarn-beta-fast", scaling.fast_turns);
  value(yarn, "yarn-beta-slow", scaling.slow_turns);
  value(yarn, "yarn-mscale", scaling.mscale);
  value(yarn, "yarn-mscale-all-dim", scaling.mscale_all_dim);
  return text;
}

}  // namespace trireme::app
