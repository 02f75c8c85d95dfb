#include "src/exchange/families/family.hpp"

namespace trireme::exchange {

TensorMap map_llama(const model::ModelConfig& config, const MapOptions& options) {
  TensorMapBuilder map(config);
  map.tokens("wte", "model.embed_tokens.weight", options.vocabulary_rows,
             config.tied_output ? std::vector<std::string>{"lm_head.weight"} : std::vector<std::string>{});
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string ours = layer_prefix(layer);
    const std::string theirs = fmt::format("model.layers.{}", layer);
    const std::string attention = theirs + ".self_attn", block = theirs + ".mlp";
    map_layer(map, ours + ".ln_1", theirs + ".input_layernorm");
    for (const std::string suffix : {"weight", "bias"}) {
      if (suffix == "bias" && !config.has_qkv_bias()) continue;
      map.split_heads(ours + ".attn", suffix, attention + ".q_proj." + suffix, attention + ".k_proj." + suffix,
                      attention + ".v_proj." + suffix, options.rotary);
    }
    map_layer(map, ours + ".attn.q_ln", attention + ".q_norm");
    map_layer(map, ours + ".attn.k_ln", attention + ".k_norm");
    map_layer(map, ours + ".attn.proj", attention + ".o_proj");
    map_layer(map, ours + ".ln_2", theirs + ".post_attention_layernorm");
    for (const std::string suffix : {".weight", ".bias"}) {
      if (suffix == ".bias" && !config.linear_bias) continue;
      map.split_gate(ours + ".mlp.fc" + suffix, block + ".gate_proj" + suffix, block + ".up_proj" + suffix);
    }
    map_layer(map, ours + ".mlp.proj", block + ".down_proj");
  }
  map_layer(map, "ln_f", "model.norm");
  if (!config.tied_output) map.tokens("lm_head.weight", "lm_head.weight", options.vocabulary_rows, {});
  return map.finish();
}

Family llama_family() {
  return {
      .classes = {{.id = ModelClass::llama,
                   .name = "LlamaForCausalLM",
                   .type = "llama",
                   .defaults = std::string(llama_defaults) + "ffn-hidden-size 11008 vocab-size 32000 "
                                                             "max-position-embeddings 2048",
                   .is_nearest = [](const model::ModelConfig&) { return true; },
                   .has_bias_settings = true}},
      .form = ConfigForm::llama,
      .is_nearest = [](const model::ModelConfig& config) { return !config.is_bert(); },
      .map = map_llama,
      .base = "model.",
      .buffers = {".rotary_emb.inv_freq"},
  };
}

}  // namespace trireme::exchange
