#include "src/exchange/families/family.hpp"

namespace trireme::exchange {
namespace {

TensorMap map_gemma(const model::ModelConfig& config, const MapOptions& options) {
  TensorMap map = map_llama(config, options);
  for (MappedParameter& parameter : map.parameters) {
    // All vectors are weights of norms, which the files store as their difference from 1.
    if (parameter.columns == 1) parameter.offset = config.norm_1p ? 0 : -1;
  }
  return map;
}

/// A class with the parts that all Gemmas from the second on share. `defaults` follow theirs.
ModelClass gemma_like(std::string_view name, std::string_view type, std::string_view defaults,
                      bool (*fits)(const model::ModelConfig&)) {
  ModelClass gemma = llama_like(name, type, "", fits);
  gemma.defaults = fmt::format(
      "num-layers 26 hidden-size 2304 num-attention-heads 8 num-query-groups 4 kv-channels 256 ffn-hidden-size 9216 "
      "layernorm-epsilon 1e-6 normalization RMSNorm apply-layernorm-1p position-embedding-type rope geglu "
      "disable-bias-linear sandwich-norm scale-embeddings query-pre-attn-scalar 256 window-size 4095 {}",
      defaults);
  gemma.own_keys = {{"gate", "hidden_activation."},
                    {"query_scalar", "query_pre_attn_scalar"},
                    {"logit_soft_cap", "final_logit_softcapping."},
                    {"window", "sliding_window."},
                    {"window_layers", "layer_types."}};
  gemma.fixed = {{"attention_bias", false, "linear layers of the class have no biases"},
                 {"use_bidirectional_attention", false, "only attention to earlier positions is supported"}};
  gemma.map = map_gemma;
  return gemma;
}

}  // namespace

std::vector<ModelClass> gemma_family() {
  ModelClass gemma3 = gemma_like(
      "Gemma3ForCausalLM", "gemma3_text",
      "vocab-size 262208 max-position-embeddings 131072 qk-layernorm rotary-base 1e6 rotary-base-local 10000",
      [](const model::ModelConfig& config) { return rotates(config) && config.sandwich_norm && config.qk_norm; });
  gemma3.own_keys.emplace_back("rotary_base_local", "rope_local_base_freq.");
  gemma3.fixed.push_back({"attn_logit_softcapping", false, "transformers does not cap the scores of this class"});
  gemma3.window_frequency = 6;
  ModelClass gemma2 =
      gemma_like("Gemma2ForCausalLM", "gemma2",
                 "vocab-size 256000 max-position-embeddings 8192 attn-logit-softcapping 50 final-logit-softcapping 30",
                 [](const model::ModelConfig& config) { return rotates(config) && config.sandwich_norm; });
  gemma2.own_keys.emplace_back("attention_soft_cap", "attn_logit_softcapping.");
  gemma2.window_frequency = 2;
  return {gemma3, gemma2};
}

}  // namespace trireme::exchange
