#include "src/base/check.hpp"
#include "src/exchange/families/family.hpp"

namespace trireme::exchange {
namespace {

TensorMap map_bloom(const model::ModelConfig& config, const MapOptions& options) {
  TRIREME_CHECK(config.ffn_hidden == 4 * config.hidden, ConfigError,
                "<ffn_hidden_size> {}: blocks of a BloomForCausalLM are as wide as 4 x <hidden_size> {}",
                config.ffn_hidden, config.hidden);
  TensorMapBuilder map(config);
  map.tokens("wte", "transformer.word_embeddings.weight", options.vocabulary_rows,
             config.tied_output ? std::vector<std::string>{"lm_head.weight"} : std::vector<std::string>{});
  map_layer(map, "emb.ln", "transformer.word_embeddings_layernorm");
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string ours = layer_prefix(layer);
    const std::string theirs = "transformer." + ours;
    map_layer(map, ours + ".ln_1", theirs + ".input_layernorm");
    for (const std::string suffix : {"weight", "bias"}) {
      map_grouped_heads(map, ours + ".attn", suffix, theirs + ".self_attention.query_key_value." + suffix);
    }
    map_layer(map, ours + ".attn.proj", theirs + ".self_attention.dense");
    map_layer(map, ours + ".ln_2", theirs + ".post_attention_layernorm");
    map_layer(map, ours + ".mlp.fc", theirs + ".mlp.dense_h_to_4h");
    map_layer(map, ours + ".mlp.proj", theirs + ".mlp.dense_4h_to_h");
  }
  map_layer(map, "ln_f", "transformer.ln_f");
  if (!config.tied_output) map.tokens("lm_head.weight", "lm_head.weight", options.vocabulary_rows, {});
  return map.finish();
}

}  // namespace

std::vector<ModelClass> bloom_family() {
  return {{
      .name = "BloomForCausalLM",
      .type = "bloom",
      .defaults = "num-layers 2 hidden-size 64 num-attention-heads 8 ffn-hidden-size 256 vocab-size 250880 "
                  "max-position-embeddings 2048 position-embedding-type alibi embed-layernorm",
      .fits =
          [](const model::ModelConfig& config) {
            const bool alibi = config.position_embedding == model::PositionEmbedding::alibi;
            return config.embedding_norm || (alibi && !config.scaled_alibi);
          },
      .keys = &model::ConfigKeys::gpt2,
      .own_keys = {{"hidden", "hidden_size"}, {"ffn_hidden", "."}, {"max_positions", "seq_length"}, {"gelu", ""}},
      .older_keys = {{"n_embed", "hidden_size"}, {"num_hidden_layers", "n_layer"}, {"num_attention_heads", "n_head"}},
      .fixed = {{"apply_residual_connection_post_layernorm", false, "residuals are the inputs of norms"}},
      .ffn_follows_hidden = true,
      .map = map_bloom,
      .base = "transformer.",
  }};
}

}  // namespace trireme::exchange
