#include "src/exchange/families/family.hpp"

namespace trireme::exchange {

std::vector<ModelClass> olmo_family() {
  ModelClass olmoe =
      llama_like("OlmoeForCausalLM", "olmoe",
                 "num-layers 16 hidden-size 2048 num-attention-heads 16 ffn-hidden-size 2048 "
                 "vocab-size 50304 max-position-embeddings 4096 layernorm-epsilon 1e-5 qk-layernorm "
                 "qk-layernorm-across-heads num-experts 64 moe-router-topk 8 moe-router-pre-softmax",
                 [](const model::ModelConfig& config) { return has_experts(config) && config.qk_norm_across_heads; });
  olmoe.own_keys = {{"kv_channels", ""},
                    {"experts", "num_experts"},
                    {"experts_per_token", "num_experts_per_tok"},
                    {"expert_ffn_hidden", "intermediate_size"},  // no layer has a dense block
                    {"router_pre_softmax", "norm_topk_prob."}};
  olmoe.fixed = {{"attention_bias", false, "linear layers of the class have no biases"},
                 {"rope_interleave", false, "the class rotates channels in halves"},
                 {"clip_qkv", false, "limits of queries, keys and values are not supported"}};
  olmoe.map = [](const model::ModelConfig& config, const MapOptions& options) {
    return map_around(config, options, map_attention,
                      [](TensorMapBuilder& map, const MapOptions&, const std::string& ours, const std::string& theirs) {
                        map_experts(map, ours, theirs + ".mlp");
                      });
  };
  ModelClass olmo2 = llama_like("Olmo2ForCausalLM", "olmo2",
                                "ffn-hidden-size 11008 vocab-size 50304 max-position-embeddings 2048 layernorm-epsilon "
                                "1e-5 qk-layernorm qk-layernorm-across-heads post-branch-norm",
                                [](const model::ModelConfig& config) {
                                  return rotates(config) && (config.post_branch_norm || config.qk_norm_across_heads);
                                });
  olmo2.fixed = {{"attention_bias", false, "linear layers of the class have no biases"},
                 {"rope_interleave", false, "the class rotates channels in halves"}};
  return {olmoe, olmo2};
}

}  // namespace trireme::exchange
