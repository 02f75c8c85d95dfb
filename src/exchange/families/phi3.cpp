#include "src/base/check.hpp"
#include "src/exchange/families/family.hpp"

namespace trireme::exchange {
namespace {

/// Maps queries, keys and values to one tensor that has them in this order.
void map_fused_heads(TensorMapBuilder& map, const std::string& prefix, const std::string& tensor) {
  const model::ModelConfig& config = map.config();
  if (config.kv_heads() == config.heads) return map.same(prefix + ".qkv.weight", tensor);
  const std::int64_t queries = config.attention_columns(), others = 2 * config.kv_heads() * config.head_dim();
  const std::size_t fused = map.tensor({.name = tensor, .shape = {queries + others, config.hidden}});
  map.run(prefix + ".q.weight", {.count = queries, .tensor = fused});
  map.run(prefix + ".kv.weight", {.count = others, .tensor = fused, .foreign_first = queries});
}

TensorMap map_phi3(const model::ModelConfig& config, const MapOptions& options) {
  TRIREME_CHECK(options.rotary == RotaryLayout::halves, ConfigError,
                "rope_interleave is true: a Phi3ForCausalLM rotates channels in halves");
  return map_around(
      config, options,
      [](TensorMapBuilder& map, const MapOptions&, const std::string& ours, const std::string& theirs) {
        map_fused_heads(map, ours, theirs + ".self_attn.qkv_proj.weight");
        map_layer(map, ours + ".proj", theirs + ".self_attn.o_proj");
      },
      [](TensorMapBuilder& map, const MapOptions&, const std::string& ours, const std::string& theirs) {
        map_layer(map, ours + ".fc", theirs + ".mlp.gate_up_proj");
        map_layer(map, ours + ".proj", theirs + ".mlp.down_proj");
      });
}

}  // namespace

std::vector<ModelClass> phi3_family() {
  ModelClass phi3 = llama_like(
      "Phi3ForCausalLM", "phi3",
      "hidden-size 3072 ffn-hidden-size 8192 vocab-size 32064 max-position-embeddings 4096 layernorm-epsilon 1e-5",
      [](const model::ModelConfig& config) {  // with full rotation it is a Llama or a Mistral, too
        return rotates(config) && config.rotary_percent != 1 && !config.has_qkv_bias() && !config.qk_norm;
      });
  // transformers has LongRoPE alone for the frequencies of a Phi-3.
  phi3.own_keys = {{"rotary_percent", "rope_parameters.partial_rotary_factor"},
                   {"rotary_scaling", ""},
                   {"rotary_interpolation", ""},
                   {"window", "sliding_window."}};
  phi3.fixed = {{"attention_bias", false, "linear layers of the class have no biases"}};
  phi3.map = map_phi3;
  return {phi3};
}

}  // namespace trireme::exchange
