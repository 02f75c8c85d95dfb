#include "src/exchange/families/family.hpp"

namespace trireme::exchange {
namespace {

bool has_own_biases(const model::ModelConfig& config) { return config.qkv_bias && !config.linear_bias; }

const FixedSetting no_window{"use_sliding_window", false, "a position attends to all before it here", true};

}  // namespace

Family qwen_family() {
  return {
      .classes = {{.id = ModelClass::qwen3,
                   .name = "Qwen3ForCausalLM",
                   .type = "qwen3",
                   .defaults = std::string(llama_defaults) +
                               "ffn-hidden-size 22016 vocab-size 151936 "
                               "max-position-embeddings 32768 num-query-groups 32 kv-channels 128 qk-layernorm",
                   .is_nearest = [](const model::ModelConfig& config) { return config.qk_norm; },
                   .fixed = {no_window}},
                  {.id = ModelClass::qwen2,
                   .name = "Qwen2ForCausalLM",
                   .type = "qwen2",
                   .defaults = std::string(llama_defaults) +
                               "ffn-hidden-size 22016 vocab-size 151936 "
                               "max-position-embeddings 32768 num-query-groups 32 add-qkv-bias",
                   .is_nearest = has_own_biases,
                   .fixed = {no_window}}},
      .form = ConfigForm::llama,
      .is_nearest =
          [](const model::ModelConfig& config) {
            return !config.is_bert() && config.position_embedding == model::PositionEmbedding::rope &&
                   (config.qk_norm || has_own_biases(config));
          },
      .map = map_llama,
      .base = "model.",
  };
}

}  // namespace trireme::exchange
