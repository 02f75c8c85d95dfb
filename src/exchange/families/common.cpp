#include "src/exchange/families/family.hpp"

namespace trireme::exchange {

bool rotates(const model::ModelConfig& config) {
  return !config.is_bert() && config.position_embedding == model::PositionEmbedding::rope;
}

bool rotates_plain(const model::ModelConfig& config) {
  return rotates(config) && config.normalization == model::Normalization::layer_norm && !config.gated;
}

bool has_experts(const model::ModelConfig& config) { return !config.is_bert() && config.experts.count > 0; }

ModelClass llama_like(std::string_view name, std::string_view type, std::string_view defaults,
                      bool (*fits)(const model::ModelConfig&)) {
  return {
      .name = name,
      .type = type,
      .defaults = fmt::format("num-layers 32 hidden-size 4096 num-attention-heads 32 normalization RMSNorm swiglu "
                              "position-embedding-type rope disable-bias-linear layernorm-epsilon 1e-6 "
                              "untie-embeddings-and-output-weights {}",
                              defaults),
      .fits = fits,
      .keys = &model::ConfigKeys::llama,
      .map = map_llama,
      .base = "model.",
      .buffers = {".rotary_emb.inv_freq"},
  };
}

void map_layer(TensorMapBuilder& map, const std::string& parameter, const std::string& tensor) {
  for (const char* suffix : {".weight", ".bias"}) {
    if (map.has(parameter + suffix)) map.same(parameter + suffix, tensor + suffix);
  }
}

void map_rotated(TensorMapBuilder& map, const std::string& parameter, const std::string& tensor, RotaryLayout rotary) {
  for (const char* suffix : {".weight", ".bias"}) {
    if (map.has(parameter + suffix)) map.rotated(parameter + suffix, tensor + suffix, rotary);
  }
}

void map_attention(TensorMapBuilder& map, const MapOptions& options, const std::string& ours,
                   const std::string& theirs) {
  const std::string attention = theirs + ".self_attn";
  for (const std::string suffix : {"weight", "bias"}) {
    if (suffix == "bias" && !map.config().has_qkv_bias()) continue;
    map.split_heads(ours, suffix, attention + ".q_proj." + suffix, attention + ".k_proj." + suffix,
                    attention + ".v_proj." + suffix, *options.rotary);
  }
  map_rotated(map, ours + ".q_ln", attention + ".q_norm", *options.rotary);
  map_rotated(map, ours + ".k_ln", attention + ".k_norm", *options.rotary);
  map_layer(map, ours + ".proj", attention + ".o_proj");
}

void map_grouped_heads(TensorMapBuilder& map, const std::string& ours, const std::string& suffix,
                       const std::string& tensor, RotaryLayout rotary) {
  const std::int64_t a = map.config().heads, k = map.config().kv_heads(), d = map.config().head_dim();
  const std::int64_t queries = a / k;  // queries of a group
  std::size_t fused = 0;
  for (int part = 0; part < 3; ++part) {
    const std::string parameter = ours + (k == a ? ".qkv." : part == 0 ? ".q." : ".kv.") + suffix;
    if (part == 0) fused = map.tensor({.name = tensor, .shape = map.parameter(parameter).shape_of((a + 2 * k) * d)});
    const std::int64_t first = k == a ? part * a : part == 2 ? k : 0;
    for (std::int64_t head = 0; head < (part == 0 ? a : k); ++head) {
      const std::int64_t group = part == 0 ? head / queries : head;
      const std::int64_t place = part == 0 ? head % queries : queries + part - 1;
      map.head(parameter,
               {.first = (first + head) * d,
                .count = d,
                .tensor = fused,
                .foreign_first = (group * (queries + 2) + place) * d},
               part == 2 ? RotaryLayout::halves : rotary);
    }
  }
}

void map_gated(TensorMapBuilder& map, const std::string& ours, const std::string& theirs, const GatedNames& names) {
  for (const std::string suffix : {".weight", ".bias"}) {
    if (!map.has(ours + ".fc" + suffix)) continue;
    map.split_gate(ours + ".fc" + suffix, fmt::format("{}.{}{}", theirs, names.gate, suffix),
                   fmt::format("{}.{}{}", theirs, names.up, suffix));
  }
  map_layer(map, ours + ".proj", fmt::format("{}.{}", theirs, names.down));
}

void map_experts(TensorMapBuilder& map, const std::string& ours, const std::string& theirs, const GatedNames& names) {
  map.same(ours + ".router.weight", theirs + ".gate.weight");
  for (std::int64_t i = 0; i < map.config().experts.count; ++i) {
    const std::string expert = fmt::format(".experts.{}", i);
    map_gated(map, ours + expert, theirs + expert, names);
  }
}

namespace {

std::string layer_of(int layer) { return fmt::format("model.layers.{}", layer); }

/// Names of the tensors that repeat the model's tokens, or its output matrix, in modules that predict further tokens.
std::vector<std::string> repeated(const model::ModelConfig& config, const char* name) {
  std::vector<std::string> names;
  for (int layer = config.layers; layer < config.all_layers(); ++layer) names.push_back(layer_of(layer) + name);
  return names;
}

/// Maps all parts of a layer.
void map_one_layer(TensorMapBuilder& map, const MapOptions& options, MapPart attention, MapPart block, int layer) {
  const std::string ours = layer_prefix(layer), theirs = layer_of(layer);
  const bool after = map.config().post_branch_norm;
  map_layer(map, ours + ".ln_1", theirs + (after ? ".post_attention_layernorm" : ".input_layernorm"));
  attention(map, options, ours + ".attn", theirs);
  map_layer(map, ours + ".out_ln_1", theirs + ".post_attention_layernorm");
  map_layer(map, ours + ".ln_2",
            theirs + (map.config().sandwich_norm ? ".pre_feedforward_layernorm"
                      : after                    ? ".post_feedforward_layernorm"
                                                 : ".post_attention_layernorm"));
  map_layer(map, ours + ".out_ln_2", theirs + ".post_feedforward_layernorm");
  block(map, options, ours + ".mlp", theirs);
}

}  // namespace

TensorMap map_around(const model::ModelConfig& config, const MapOptions& options, MapPart attention, MapPart block) {
  TensorMapBuilder map(config);
  const std::vector<std::string> heads = repeated(config, ".shared_head.head.weight");
  std::vector<std::string> tokens = repeated(config, ".embed_tokens.weight");
  if (config.tied_output) {
    tokens.insert(tokens.begin(), "lm_head.weight");
    tokens.insert(tokens.end(), heads.begin(), heads.end());
  }
  map.tokens("wte", "model.embed_tokens.weight", options.vocabulary_rows, tokens);
  for (int layer = 0; layer < config.all_layers(); ++layer) map_one_layer(map, options, attention, block, layer);
  map_layer(map, "ln_f", "model.norm");
  if (!config.tied_output) map.tokens("lm_head.weight", "lm_head.weight", options.vocabulary_rows, heads);
  // Modules that predict further tokens have DeepSeek-V3's names.
  for (int depth = 0; depth < config.all_layers() - config.layers; ++depth) {
    const std::string ours = fmt::format("mtp.{}", depth), theirs = layer_of(config.layers + depth);
    map_layer(map, ours + ".embedding_ln", theirs + ".enorm");
    map_layer(map, ours + ".hidden_ln", theirs + ".hnorm");
    map_layer(map, ours + ".proj", theirs + ".eh_proj");
    map_layer(map, ours + ".ln", theirs + ".shared_head.norm");
  }
  if (options.writes_copies) {
    for (const std::string& name : repeated(config, ".embed_tokens.weight")) map.again("wte", name);
    for (const std::string& name : heads) map.again(config.tied_output ? "wte" : "lm_head.weight", name);
  }
  return map.finish();
}

TensorMap map_llama(const model::ModelConfig& config, const MapOptions& options) {
  return map_around(config, options, map_attention,
                    [](TensorMapBuilder& map, const MapOptions&, const std::string& ours, const std::string& theirs) {
                      map_gated(map, ours, theirs + ".mlp");
                    });
}

}  // namespace trireme::exchange
