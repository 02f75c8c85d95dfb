#include "src/exchange/families/family.hpp"

namespace trireme::exchange {
namespace {

TensorMap map_mixtral(const model::ModelConfig& config, const MapOptions& options) {
  return map_around(config, options, map_attention,
                    [](TensorMapBuilder& map, const MapOptions&, const std::string& ours, const std::string& theirs) {
                      map_experts(map, ours, theirs + ".block_sparse_moe", {.gate = "w1", .up = "w3", .down = "w2"});
                    });
}

}  // namespace

std::vector<ModelClass> mixtral_family() {
  ModelClass mixtral = llama_like("MixtralForCausalLM", "mixtral",
                                  "ffn-hidden-size 14336 vocab-size 32000 max-position-embeddings 131072 "
                                  "num-query-groups 8 layernorm-epsilon 1e-5 rotary-base 1e6 num-experts 8",
                                  [](const model::ModelConfig& config) { return has_experts(config); });
  mixtral.own_keys = {{"experts", "num_local_experts"},
                      {"experts_per_token", "num_experts_per_tok"},
                      {"expert_ffn_hidden", "intermediate_size"},  // no layer has a dense block
                      {"window", "sliding_window."}};
  mixtral.fixed = {{"router_jitter_noise", std::int64_t{0}, "noise in the input of routers is not supported"}};
  mixtral.map = map_mixtral;
  mixtral.fused = {
      {".block_sparse_moe.", ".mlp."}, {".w1.", ".gate_proj."}, {".w3.", ".up_proj."}, {".w2.", ".down_proj."}};
  return {mixtral};
}

}  // namespace trireme::exchange
