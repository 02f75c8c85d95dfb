#include "src/exchange/families/family.hpp"

namespace trireme::exchange {
namespace {

bool rotates(const model::ModelConfig& config) {
  return !config.is_bert() && config.position_embedding == model::PositionEmbedding::rope;
}

}  // namespace

std::vector<ModelClass> qwen_family() {
  std::vector<ModelClass> classes = {
      llama_like("Qwen3ForCausalLM", "qwen3",
                 "ffn-hidden-size 22016 vocab-size 151936 max-position-embeddings 32768 num-query-groups 32 "
                 "kv-channels 128 qk-layernorm",
                 [](const model::ModelConfig& config) { return rotates(config) && config.qk_norm; }),
      llama_like(
          "Qwen2ForCausalLM", "qwen2",
          "ffn-hidden-size 22016 vocab-size 151936 max-position-embeddings 32768 num-query-groups 32 "
          "add-qkv-bias",
          [](const model::ModelConfig& config) { return rotates(config) && config.qkv_bias && !config.linear_bias; })};
  for (ModelClass& qwen : classes) {
    qwen.fixed = {{"use_sliding_window", false, "only attention to all earlier positions is supported", true}};
  }
  return classes;
}

}  // namespace trireme::exchange
