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
  TensorMapBuilder map(config);
  map.tokens("wte", "model.embed_tokens.weight", options.vocabulary_rows,
             config.tied_output ? std::vector<std::string>{"lm_head.weight"} : std::vector<std::string>{});
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string ours = layer_prefix(layer);
    const std::string theirs = fmt::format("model.layers.{}", layer);
    map_layer(map, ours + ".ln_1", theirs + ".input_layernorm");
    map_fused_heads(map, ours + ".attn", theirs + ".self_attn.qkv_proj.weight");
    map_layer(map, ours + ".attn.proj", theirs + ".self_attn.o_proj");
    map_layer(map, ours + ".ln_2", theirs + ".post_attention_layernorm");
    map_layer(map, ours + ".mlp.fc", theirs + ".mlp.gate_up_proj");
    map_layer(map, ours + ".mlp.proj", theirs + ".mlp.down_proj");
  }
  map_layer(map, "ln_f", "model.norm");
  if (!config.tied_output) map.tokens("lm_head.weight", "lm_head.weight", options.vocabulary_rows, {});
  return map.finish();
}

}  // namespace

std::vector<ModelClass> phi3_family() {
  return {{
      .name = "Phi3ForCausalLM",
      .type = "phi3",
      .defaults = "num-layers 32 hidden-size 3072 num-attention-heads 32 ffn-hidden-size 8192 vocab-size 32064 "
                  "max-position-embeddings 4096 normalization RMSNorm swiglu position-embedding-type rope "
                  "disable-bias-linear untie-embeddings-and-output-weights",
      .fits =
          [](const model::ModelConfig& config) {  // with full rotation it is a Llama or a Mistral, too
            return !config.is_bert() && config.position_embedding == model::PositionEmbedding::rope &&
                   config.rotary_percent != 1 && !config.has_qkv_bias() && !config.qk_norm;
          },
      .keys = &model::ConfigKeys::llama,
      // transformers has LongRoPE alone for the frequencies of a Phi-3.
      .own_keys = {{"rotary_percent", "rope_parameters.partial_rotary_factor"},
                   {"rotary_scaling", ""},
                   {"rotary_interpolation", ""},
                   {"window", "sliding_window."}},
      .fixed = {{"attention_bias", false, "linear layers of the class have no biases"}},
      .map = map_phi3,
      .base = "model.",
      .buffers = {".rotary_emb.inv_freq"},
  }};
}

}  // namespace trireme::exchange
