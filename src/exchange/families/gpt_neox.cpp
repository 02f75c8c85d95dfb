#include "src/exchange/families/family.hpp"

namespace trireme::exchange {
namespace {

TensorMap map_gpt_neox(const model::ModelConfig& config, const MapOptions& options) {
  TensorMapBuilder map(config);
  map.tokens("wte", "gpt_neox.embed_in.weight", options.vocabulary_rows,
             config.tied_output ? std::vector<std::string>{"embed_out.weight"} : std::vector<std::string>{});
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string ours = layer_prefix(layer);
    const std::string theirs = fmt::format("gpt_neox.layers.{}.", layer);
    map_layer(map, ours + ".ln_1", theirs + "input_layernorm");
    for (const std::string suffix : {"weight", "bias"}) {
      map_grouped_heads(map, ours + ".attn", suffix, theirs + "attention.query_key_value." + suffix);
    }
    map_layer(map, ours + ".attn.proj", theirs + "attention.dense");
    map_layer(map, ours + ".ln_2", theirs + "post_attention_layernorm");
    map_layer(map, ours + ".mlp.fc", theirs + "mlp.dense_h_to_4h");
    map_layer(map, ours + ".mlp.proj", theirs + "mlp.dense_4h_to_h");
  }
  map_layer(map, "ln_f", "gpt_neox.final_layer_norm");
  if (!config.tied_output) map.tokens("lm_head.weight", "embed_out.weight", options.vocabulary_rows, {});
  return map.finish();
}

}  // namespace

std::vector<ModelClass> gpt_neox_family() {
  return {{
      .name = "GPTNeoXForCausalLM",
      .type = "gpt_neox",
      .defaults = "num-layers 44 hidden-size 6144 num-attention-heads 64 ffn-hidden-size 24576 vocab-size 50432 "
                  "max-position-embeddings 2048 position-embedding-type rope rotary-percent 0.25 gelu erf "
                  "untie-embeddings-and-output-weights parallel-residual",
      .fits =
          [](const model::ModelConfig& config) {
            return rotates_plain(config) && config.linear_bias && config.kv_heads() == config.heads &&
                   !config.shared_norm && (config.parallel_residual || config.rotary_percent != 1);
          },
      .keys = &model::ConfigKeys::llama,
      .own_keys = {{"norm_epsilon", "layer_norm_eps"},
                   {"gelu", "hidden_act"},
                   {"kv_channels", ""},
                   {"kv_heads", ""},
                   {"parallel_residual", "use_parallel_residual"},
                   {"rotary_base", "rotary_emb_base"},
                   {"rotary_percent", "rotary_pct"}},
      .fixed = {{"attention_bias", true, "all linear layers of the class have biases"},
                {"rope_interleave", false, "the class rotates channels in halves"}},
      .map = map_gpt_neox,
      .base = "gpt_neox.",
      .buffers = {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"},
  }};
}

}  // namespace trireme::exchange
