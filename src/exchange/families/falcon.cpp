#include "src/base/check.hpp"
#include "src/exchange/families/family.hpp"

namespace trireme::exchange {
namespace {

TensorMap map_falcon(const model::ModelConfig& config, const MapOptions& options) {
  TRIREME_CHECK(config.parallel_residual || config.kv_heads() == 1 || config.kv_heads() == config.heads, ConfigError,
                "<num_query_groups> {} without <parallel_residual>: such a Falcon has one group, or as many as heads",
                config.kv_heads());
  TRIREME_CHECK(
      rotates(config) || (config.position_embedding == model::PositionEmbedding::alibi && config.scaled_alibi),
      ConfigError, "<position_embedding_type>: a Falcon has rope, or alibi with <scale_alibi>");
  TensorMapBuilder map(config);
  map.tokens("wte", "transformer.word_embeddings.weight", options.vocabulary_rows,
             config.tied_output ? std::vector<std::string>{"lm_head.weight"} : std::vector<std::string>{});
  const bool two_norms = config.parallel_residual && !config.shared_norm;
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string ours = layer_prefix(layer);
    const std::string theirs = "transformer." + ours;
    map_layer(map, ours + ".ln_1", theirs + (two_norms ? ".ln_attn" : ".input_layernorm"));
    for (const std::string suffix : {"weight", "bias"}) {
      if (suffix == "bias" && !config.has_qkv_bias()) continue;
      map_grouped_heads(map, ours + ".attn", suffix, theirs + ".self_attention.query_key_value." + suffix);
    }
    map_layer(map, ours + ".attn.proj", theirs + ".self_attention.dense");
    map_layer(map, ours + ".ln_2", theirs + (two_norms ? ".ln_mlp" : ".post_attention_layernorm"));
    map_layer(map, ours + ".mlp.fc", theirs + ".mlp.dense_h_to_4h");
    map_layer(map, ours + ".mlp.proj", theirs + ".mlp.dense_4h_to_h");
  }
  map_layer(map, "ln_f", "transformer.ln_f");
  if (!config.tied_output) map.tokens("lm_head.weight", "lm_head.weight", options.vocabulary_rows, {});
  return map.finish();
}

}  // namespace

std::vector<ModelClass> falcon_family() {
  return {{
      .name = "FalconForCausalLM",
      .type = "falcon",
      .defaults = "num-layers 32 hidden-size 4544 num-attention-heads 71 num-query-groups 1 ffn-hidden-size 18176 "
                  "vocab-size 65024 max-position-embeddings 2048 position-embedding-type rope gelu erf "
                  "disable-bias-linear parallel-residual shared-norm",
      .fits =
          [](const model::ModelConfig& config) {
            return (rotates_plain(config) && config.parallel_residual) || config.scaled_alibi;
          },
      .keys = &model::ConfigKeys::llama,
      .own_keys = {{"norm_epsilon", "layer_norm_epsilon"},
                   {"gelu", "activation"},
                   {"ffn_hidden", "ffn_hidden_size"},
                   {"kv_channels", ""},
                   {"kv_heads", "num_kv_heads."},
                   {"linear_bias", "bias"},
                   {"positions", "alibi."},
                   {"scaled_alibi", "alibi."},
                   {"parallel_residual", "parallel_attn."},
                   {"shared_norm", "num_ln_in_parallel_attn."}},
      .fixed = {{"rope_interleave", false, "the class rotates channels in halves"}},
      .ffn_follows_hidden = true,
      .map = map_falcon,
      .base = "transformer.",
  }};
}

}  // namespace trireme::exchange
