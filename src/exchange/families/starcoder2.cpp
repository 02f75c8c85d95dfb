#include "src/exchange/families/family.hpp"

namespace trireme::exchange {
namespace {

TensorMap map_starcoder2(const model::ModelConfig& config, const MapOptions& options) {
  TensorMapBuilder map(config);
  map.tokens("wte", "model.embed_tokens.weight", options.vocabulary_rows,
             config.tied_output ? std::vector<std::string>{"lm_head.weight"} : std::vector<std::string>{});
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string ours = layer_prefix(layer);
    const std::string theirs = fmt::format("model.layers.{}", layer);
    const std::string attention = theirs + ".self_attn";
    map_layer(map, ours + ".ln_1", theirs + ".input_layernorm");
    for (const std::string suffix : {"weight", "bias"}) {
      if (suffix == "bias" && !config.linear_bias) continue;
      map.split_heads(ours + ".attn", suffix, attention + ".q_proj." + suffix, attention + ".k_proj." + suffix,
                      attention + ".v_proj." + suffix, options.rotary);
    }
    map_layer(map, ours + ".attn.proj", attention + ".o_proj");
    map_layer(map, ours + ".ln_2", theirs + ".post_attention_layernorm");
    map_layer(map, ours + ".mlp.fc", theirs + ".mlp.c_fc");
    map_layer(map, ours + ".mlp.proj", theirs + ".mlp.c_proj");
  }
  map_layer(map, "ln_f", "model.norm");
  if (!config.tied_output) map.tokens("lm_head.weight", "lm_head.weight", options.vocabulary_rows, {});
  return map.finish();
}

}  // namespace

std::vector<ModelClass> starcoder2_family() {
  return {{
      .name = "Starcoder2ForCausalLM",
      .type = "starcoder2",
      .defaults = "num-layers 30 hidden-size 3072 num-attention-heads 24 num-query-groups 2 ffn-hidden-size 12288 "
                  "vocab-size 49152 max-position-embeddings 4096 position-embedding-type rope",
      .fits =
          [](const model::ModelConfig& config) {
            return !config.is_bert() && config.position_embedding == model::PositionEmbedding::rope &&
                   config.normalization == model::Normalization::layer_norm && !config.gated;
          },
      .keys = &model::ConfigKeys::llama,
      .own_keys = {{"norm_epsilon", "norm_epsilon"},
                   {"gelu", "hidden_act"},
                   {"linear_bias", "use_bias"},
                   {"window", "sliding_window."}},
      .fixed = {{"norm_type", std::string_view("layer_norm"), "only layer normalisation is supported"},
                {"mlp_type", std::string_view("default"), "only a feed-forward block without a gate is supported"}},
      .tanh_gelu = "gelu_pytorch_tanh",
      .map = map_starcoder2,
      .base = "model.",
      .buffers = {".rotary_emb.inv_freq"},
  }};
}

}  // namespace trireme::exchange
