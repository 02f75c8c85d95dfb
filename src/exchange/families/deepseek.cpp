#include "src/base/check.hpp"
#include "src/exchange/families/family.hpp"

namespace trireme::exchange {
namespace {

/// Maps latent attention. The last channels of each head of queries rotate, and the last rows of kv_down.
void map_latent_attention(TensorMapBuilder& map, const MapOptions& options, const std::string& ours,
                          const std::string& theirs) {
  const model::LatentAttention& latent = map.config().latent;
  const std::string attention = theirs + ".self_attn";
  const bool low_rank = latent.query_rank > 0;
  const auto map_head = [&](const std::string& parameter, std::size_t tensor, std::int64_t first, std::int64_t plain) {
    map.run(parameter, {.first = first, .count = plain, .tensor = tensor, .foreign_first = first});
    first += plain;
    map.head(parameter, {.first = first, .count = latent.rotary_dim, .tensor = tensor, .foreign_first = first},
             *options.rotary);
  };
  const auto tensor_of = [&](const std::string& parameter, const std::string& name) {
    const MappedParameter& mapped = map.parameter(parameter);
    return map.tensor({.name = attention + name, .shape = mapped.shape_of(mapped.rows())});
  };
  map_layer(map, ours + ".q_down", attention + ".q_a_proj");
  map_layer(map, ours + ".q_ln", attention + ".q_a_layernorm");
  const std::string queries = ours + (low_rank ? ".q_up.weight" : ".q.weight");
  const std::size_t of_queries = tensor_of(queries, low_rank ? ".q_b_proj.weight" : ".q_proj.weight");
  for (std::int64_t head = 0; head < map.config().heads; ++head) {
    map_head(queries, of_queries, head * map.config().head_dim(), latent.head_dim);
  }
  map_head(ours + ".kv_down.weight", tensor_of(ours + ".kv_down.weight", ".kv_a_proj_with_mqa.weight"), 0,
           latent.kv_rank);
  map_layer(map, ours + ".kv_ln", attention + ".kv_a_layernorm");
  map_layer(map, ours + ".kv_up", attention + ".kv_b_proj");
  map_layer(map, ours + ".proj", attention + ".o_proj");
}

void map_block(TensorMapBuilder& map, const MapOptions&, const std::string& ours, const std::string& theirs) {
  if (!map.has(ours + ".router.weight")) return map_gated(map, ours, theirs + ".mlp");
  map_experts(map, ours, theirs + ".mlp");
  if (map.has(ours + ".router.bias")) map.same(ours + ".router.bias", theirs + ".mlp.gate.e_score_correction_bias");
  map_gated(map, ours + ".shared", theirs + ".mlp.shared_experts");
}

TensorMap map_deepseek(const model::ModelConfig& config, const MapOptions& options) {
  const model::ExpertConfig& experts = config.experts;
  TRIREME_CHECK(experts.shared_hidden > 0 && experts.shared_hidden % config.expert_ffn_hidden() == 0, ConfigError,
                "<moe_shared_expert_intermediate_size> {}: a DeepSeek model has shared experts, a multiple of "
                "<moe_ffn_hidden_size> {} wide",
                experts.shared_hidden, config.expert_ffn_hidden());
  TRIREME_CHECK(experts.layers.find("10") == std::string::npos, ConfigError,
                "<moe_layer_freq> {}: only the first layers of a DeepSeek model are dense", experts.layers);
  TRIREME_CHECK(experts.groups == 1 || experts.per_token == 2 * experts.groups_per_token, ConfigError,
                "<moe_router_topk> {} with <moe_router_group_topk> {}: DeepseekV3ForCausalLM compares groups by two "
                "experts: their ratio must be 2",
                experts.per_token, experts.groups_per_token);
  const model::RotaryScaling& scaling = config.rotary_scaling;
  TRIREME_CHECK(scaling.mscale_all_dim == 0 || scaling.mscale != 0, ConfigError,
                "<yarn_mscale> 0 with <yarn_mscale_all_dim> {}: a DeepSeek model has both or neither",
                scaling.mscale_all_dim);
  return map_around(config, options, map_latent_attention, map_block);
}

ModelClass deepseek(std::string_view name, std::string_view type, std::string_view defaults,
                    bool (*fits)(const model::ModelConfig&)) {
  ModelClass result = llama_like(name, type, defaults, fits);
  result.own_keys = {{"kv_channels", ""},
                     {"kv_heads", ""},  // each head has its own keys
                     {"norm_epsilon", ""},
                     {"query_rank", "q_lora_rank."},
                     {"kv_rank", "kv_lora_rank"},
                     {"latent_head_dim", "qk_nope_head_dim"},
                     {"latent_rotary_dim", "qk_rope_head_dim"},
                     {"value_dim", "v_head_dim"},
                     {"experts", "n_routed_experts"},
                     {"experts_per_token", "num_experts_per_tok"},
                     {"expert_ffn_hidden", "moe_intermediate_size"},
                     {"shared_hidden", "n_shared_experts."},
                     {"expert_layers", "first_k_dense_replace."},
                     {"router_scaling", "routed_scaling_factor"}};
  result.fixed = {{"rms_norm_eps", 1e-6, "the norms of latents always have 1e-6", true},
                  {"attention_bias", false, "latent attention has no biases", true},
                  {"mlp_bias", false, "experts have no biases", true},
                  {"moe_layer_freq", std::int64_t{1}, "all layers after the dense ones have experts", true}};
  result.rotary = RotaryLayout::interleaved;
  result.map = map_deepseek;
  return result;
}

}  // namespace

std::vector<ModelClass> deepseek_family() {
  ModelClass v3 =
      deepseek("DeepseekV3ForCausalLM", "deepseek_v3",
               "num-layers 61 hidden-size 7168 num-attention-heads 128 ffn-hidden-size 18432 vocab-size 129280 "
               "max-position-embeddings 4096 multi-latent-attention qk-layernorm q-lora-rank 1536 kv-lora-rank 512 "
               "num-experts 256 moe-router-topk 8 moe-ffn-hidden-size 2048 moe-shared-expert-intermediate-size 2048 "
               "moe-router-score-function sigmoid moe-router-topk-scaling-factor 2.5 "
               "moe-router-num-groups 8 moe-router-group-topk 4 moe-router-enable-expert-bias",
               [](const model::ModelConfig& config) {
                 return config.latent.used && config.experts.score == RouterScore::sigmoid;
               });
  v3.own_keys.insert(v3.own_keys.end(), {{"router_groups", "n_group"},
                                         {"router_groups_per_token", "topk_group"},
                                         {"mtp_depths", "num_nextn_predict_layers."}});
  v3.fixed.insert(v3.fixed.end(), {{"scoring_func", std::string_view("sigmoid"), "the class has sigmoid scores", true},
                                   {"topk_method", std::string_view("noaux_tc"), "the class has this method", true}});
  ModelClass v2 = deepseek("DeepseekV2ForCausalLM", "deepseek_v2",
                           "ffn-hidden-size 11008 vocab-size 102400 max-position-embeddings 2048 "
                           "multi-latent-attention qk-layernorm q-lora-rank 1536 kv-lora-rank 512 num-experts 64 "
                           "moe-router-topk 6 moe-ffn-hidden-size 1407 moe-shared-expert-intermediate-size 2814 "
                           "moe-router-pre-softmax",
                           [](const model::ModelConfig& config) { return config.latent.used; });
  v2.fixed.insert(v2.fixed.end(), {{"scoring_func", std::string_view("softmax"), "the class has softmax scores", true},
                                   {"topk_method", std::string_view("greedy"),
                                    "groups that are compared by one expert are not supported", true}});
  return {v3, v2};
}

}  // namespace trireme::exchange
