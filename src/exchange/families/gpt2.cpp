#include "src/exchange/families/family.hpp"

namespace trireme::exchange {
namespace {

TensorMap map_gpt2(const model::ModelConfig& config, const MapOptions& options) {
  TensorMapBuilder map(config);
  map.tokens("wte", "transformer.wte.weight", options.vocabulary_rows,
             config.tied_output ? std::vector<std::string>{"lm_head.weight"} : std::vector<std::string>{});
  map.same("wpe", "transformer.wpe.weight");
  const auto map_conv = [&](const std::string& parameter, const std::string& tensor) {
    map.transposed(parameter + ".weight", tensor + ".weight");
    map.same(parameter + ".bias", tensor + ".bias");
  };
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string ours = layer_prefix(layer);
    const std::string theirs = "transformer." + ours;
    map_layer(map, ours + ".ln_1", theirs + ".ln_1");
    map_conv(ours + ".attn.qkv", theirs + ".attn.c_attn");
    map_conv(ours + ".attn.proj", theirs + ".attn.c_proj");
    map_layer(map, ours + ".ln_2", theirs + ".ln_2");
    map_conv(ours + ".mlp.fc", theirs + ".mlp.c_fc");
    map_conv(ours + ".mlp.proj", theirs + ".mlp.c_proj");
  }
  map_layer(map, "ln_f", "transformer.ln_f");
  if (!config.tied_output) map.tokens("lm_head.weight", "lm_head.weight", options.vocabulary_rows, {});
  return map.finish();
}

}  // namespace

std::vector<ModelClass> gpt2_family() {
  return {{
      .name = "GPT2LMHeadModel",
      .type = "gpt2",
      .defaults = "",
      .fits =
          [](const model::ModelConfig& config) {
            return !config.is_bert() && config.position_embedding == model::PositionEmbedding::learned_absolute &&
                   !config.embedding_norm;
          },
      .keys = &model::ConfigKeys::gpt2,
      .fixed = {{"scale_attn_weights", true, "scores are always divided by the square root of the head size"},
                {"scale_attn_by_inverse_layer_idx", false, "scores have the same scale in all layers"},
                {"add_cross_attention", false, "cross-attention is not supported"}},
      .ffn_follows_hidden = true,
      .map = map_gpt2,
      .base = "transformer.",
      .buffers = {".attn.bias", ".attn.masked_bias"},
  }};
}

}  // namespace trireme::exchange
