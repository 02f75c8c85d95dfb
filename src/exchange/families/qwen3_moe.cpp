#include "src/exchange/families/family.hpp"

namespace trireme::exchange {
namespace {

TensorMap map_qwen3_moe(const model::ModelConfig& config, const MapOptions& options) {
  return map_around(config, options, map_attention,
                    [](TensorMapBuilder& map, const MapOptions&, const std::string& ours, const std::string& theirs) {
                      const bool is_dense = !map.has(ours + ".router.weight");
                      (is_dense ? map_gated : map_experts)(map, ours, theirs + ".mlp", {});
                    });
}

}  // namespace

std::vector<ModelClass> qwen3_moe_family() {
  ModelClass qwen3 = llama_like("Qwen3MoeForCausalLM", "qwen3_moe",
                                "num-layers 24 hidden-size 2048 ffn-hidden-size 6144 vocab-size 151936 "
                                "max-position-embeddings 32768 num-query-groups 4 qk-layernorm num-experts 128 "
                                "moe-router-topk 8 moe-ffn-hidden-size 768 moe-router-pre-softmax",
                                [](const model::ModelConfig& config) { return has_experts(config) && config.qk_norm; });
  qwen3.own_keys = {{"experts", "num_experts"},
                    {"experts_per_token", "num_experts_per_tok"},
                    {"expert_ffn_hidden", "moe_intermediate_size"},
                    {"router_pre_softmax", "norm_topk_prob."},
                    {"expert_layers", "mlp_only_layers."}};
  qwen3.fixed = {{"use_sliding_window", false, "only attention to all earlier positions is supported", true},
                 {"attention_bias", false, "not supported with QK norm", true}};
  qwen3.map = map_qwen3_moe;
  return {qwen3};
}

}  // namespace trireme::exchange
