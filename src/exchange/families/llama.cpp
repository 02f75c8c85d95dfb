#include "src/exchange/families/family.hpp"

namespace trireme::exchange {

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
