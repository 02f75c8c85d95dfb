#include "src/exchange/families/family.hpp"

namespace trireme::exchange {
namespace {

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

/// Returns a class with Llama's tensors and settings. `defaults` follow those that all such classes share.
ModelClass llama_like(std::string_view name, std::string_view type, std::string_view defaults,
                      bool (*fits)(const model::ModelConfig&)) {
  return {
      .name = name,
      .type = type,
      .defaults = fmt::format("num-layers 32 hidden-size 4096 num-attention-heads 32 normalization RMSNorm swiglu "
                              "position-embedding-type rope disable-bias-linear layernorm-epsilon 1e-6 "
                              "untie-embeddings-and-output-weights {}",
                              defaults),
      .fits = fits,
      .keys = &model::ConfigKeys::llama,
      .map = map_llama,
      .base = "model.",
      .buffers = {".rotary_emb.inv_freq"},
  };
}

bool rotates(const model::ModelConfig& config) {
  return !config.is_bert() && config.position_embedding == model::PositionEmbedding::rope;
}

}  // namespace

std::vector<ModelClass> llama_family() {
  ModelClass qwen3 = llama_like("Qwen3ForCausalLM", "qwen3",
                                "ffn-hidden-size 22016 vocab-size 151936 max-position-embeddings 32768 "
                                "num-query-groups 32 kv-channels 128 qk-layernorm",
                                [](const model::ModelConfig& config) { return rotates(config) && config.qk_norm; });
  ModelClass qwen2 = llama_like(
      "Qwen2ForCausalLM", "qwen2",
      "ffn-hidden-size 22016 vocab-size 151936 max-position-embeddings 32768 num-query-groups 32 add-qkv-bias",
      [](const model::ModelConfig& config) { return rotates(config) && config.qkv_bias && !config.linear_bias; });
  qwen3.fixed =
      qwen2.fixed = {{"use_sliding_window", false, "only attention to all earlier positions is supported", true}};
  qwen3.fixed.push_back({"attention_bias", false, "not supported with QK norm", true});
  ModelClass mistral = llama_like(
      "MistralForCausalLM", "mistral",
      "ffn-hidden-size 14336 vocab-size 32000 max-position-embeddings 131072 num-query-groups 8 window-size 4095",
      [](const model::ModelConfig& config) {  // a window in all layers: without one the model is a Llama
        return rotates(config) && config.window.any() && config.window.layers.empty();
      });
  mistral.own_keys = {{"window", "sliding_window."}};
  ModelClass llama =
      llama_like("LlamaForCausalLM", "llama", "ffn-hidden-size 11008 vocab-size 32000 max-position-embeddings 2048",
                 [](const model::ModelConfig& config) { return !config.is_bert(); });
  llama.own_keys = {{"linear_bias", "attention_bias"}};
  llama.has_mlp_bias = true;
  return {qwen3, qwen2, mistral, llama};
}

}  // namespace trireme::exchange
