#include "src/exchange/megatron.hpp"

#include <algorithm>

#include "src/base/check.hpp"
#include "src/exchange/families/family.hpp"

namespace trireme::exchange {
namespace {

using model::ModelConfig;

/// Maps queries, keys and values of a layer to one tensor, weights or biases.
void map_qkv(TensorMapBuilder& map, const MegatronLayout& layout, const std::string& ours, const std::string& suffix,
             const std::string& name) {
  if (layout.heads == MegatronHeads::groups) return map_grouped_heads(map, ours, suffix, name, layout.rotary);
  const std::int64_t a = map.config().heads, d = map.config().head_dim();
  const std::string parameter = ours + ".qkv." + suffix;
  const std::size_t tensor = map.tensor({.name = name, .shape = map.parameter(parameter).shape_of(3 * a * d)});
  const std::int64_t local = a / layout.shards;
  for (int part = 0; part < 3; ++part) {
    for (std::int64_t head = 0; head < a; ++head) {
      RowRun run{.first = (part * a + head) * d, .count = d, .tensor = tensor};
      if (layout.heads == MegatronHeads::parts_of_shards) {
        run.foreign_first = (head / local * 3 * local + part * local + head % local) * d;
      } else {
        run.foreign_first = head * 3 * d + part;
        run.foreign_step = 3;
      }
      map.head(parameter, run, part == 2 ? RotaryLayout::halves : layout.rotary);
    }
  }
}

/// Maps the first layer of the feed-forward block. With SwiGLU each tensor rank has its gate, then its up.
void map_expansion(TensorMapBuilder& map, const MegatronLayout& layout, const std::string& parameter,
                   const std::string& name) {
  if (!map.config().gated) return map.same(parameter, name);
  const std::int64_t f = map.config().ffn_hidden, local = f / layout.shards;
  const std::size_t tensor = map.tensor({.name = name, .shape = map.parameter(parameter).shape_of(2 * f)});
  for (std::int64_t half = 0; half < 2; ++half) {
    for (std::int64_t shard = 0; shard < layout.shards; ++shard) {
      map.run(parameter, {.first = half * f + shard * local,
                          .count = local,
                          .tensor = tensor,
                          .foreign_first = (2 * shard + half) * local});
    }
  }
}

/// Maps the outputs of a BERT: masked tokens, and with a binary head the order of segments.
void map_bert_heads(TensorMapBuilder& map, const MegatronLayout& layout) {
  map_layer(map, "mlm.dense", "lm_head.dense");
  map_layer(map, "mlm.ln", "lm_head.layer_norm");
  map.tokens("mlm.out.bias", "output_layer.bias", layout.vocabulary_rows, {});
  map_layer(map, "pooler", "pooler.dense");
  map_layer(map, "sop", "binary_head");
}

void replace(std::string& text, std::string_view from, std::string_view to) {
  if (const std::size_t at = text.find(from); at != text.npos) text.replace(at, from.size(), to);
}

}  // namespace

TensorMap megatron_tensor_map(const ModelConfig& config, const MegatronLayout& layout) {
  TRIREME_CHECK(layout.shards >= 1 && config.heads % layout.shards == 0 && config.ffn_hidden % layout.shards == 0,
                ConfigError, "{} heads and {} channels of the feed-forward block do not split evenly over {} ranks",
                config.heads, config.ffn_hidden, layout.shards);
  TRIREME_CHECK(layout.heads == MegatronHeads::groups || config.kv_heads() == config.heads, ConfigError,
                "checkpoints of versions 0 and 1 have no groups of queries");
  TRIREME_CHECK(layout.rotary == RotaryLayout::halves || config.rotary_channels() == config.head_dim(), ConfigError,
                "interleaved rotary positions are converted where all channels of a head rotate");
  TensorMapBuilder map(config);
  const bool bert = config.is_bert();
  const std::string stack = bert ? "encoder." : "decoder.";
  map.tokens(bert ? "emb.word" : "wte", "embedding.word_embeddings.weight", layout.vocabulary_rows,
             config.tied_output ? std::vector<std::string>{"output_layer.weight", "word_embeddings_for_head.weight"}
                                : std::vector<std::string>{});
  for (const auto& [parameter, tensor] :
       {std::pair{"wpe", "position"}, {"emb.pos", "position"}, {"emb.type", "tokentype"}}) {
    if (map.has(parameter)) map.same(parameter, fmt::format("embedding.{}_embeddings.weight", tensor));
  }
  if (config.embedding_norm) map_layer(map, "emb.ln", "embedding.word_embeddings.norm");
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string ours = layer_prefix(layer), theirs = fmt::format("{}layers.{}.", stack, layer);
    map_layer(map, ours + ".ln_1", theirs + "input_layernorm");
    for (const std::string suffix : {"weight", "bias"}) {
      if (suffix == "weight" || config.has_qkv_bias()) {
        map_qkv(map, layout, ours + ".attn", suffix, theirs + "self_attention.linear_qkv." + suffix);
      }
    }
    map_rotated(map, ours + ".attn.q_ln", theirs + "self_attention.q_layernorm", layout.rotary);
    map_rotated(map, ours + ".attn.k_ln", theirs + "self_attention.k_layernorm", layout.rotary);
    map_layer(map, ours + ".attn.proj", theirs + "self_attention.linear_proj");
    map_layer(map, ours + ".ln_2", theirs + "pre_mlp_layernorm");
    for (const std::string suffix : {".weight", ".bias"}) {
      if (suffix == ".weight" || config.linear_bias) {
        map_expansion(map, layout, ours + ".mlp.fc" + suffix, theirs + "mlp.linear_fc1" + suffix);
      }
    }
    map_layer(map, ours + ".mlp.proj", theirs + "mlp.linear_fc2");
  }
  map_layer(map, "ln_f", stack + "final_layernorm");
  if (bert) map_bert_heads(map, layout);
  if (!config.tied_output) map.tokens("lm_head.weight", "output_layer.weight", layout.vocabulary_rows, {});
  return map.finish();
}

std::vector<std::string> megatron_other_names(const std::string& tensor) {
  if (tensor == "word_embeddings_for_head.weight") return {};
  if (tensor == "output_layer.bias") return {"lm_head.bias"};
  std::vector<std::string> names;
  std::string fused = tensor;
  replace(fused, ".input_layernorm.", ".self_attention.linear_qkv.layer_norm_");
  replace(fused, ".pre_mlp_layernorm.", ".mlp.linear_fc1.layer_norm_");
  if (fused != tensor) names.push_back(fused);
  std::string before = tensor;
  for (const auto& [now, then] : {std::pair{".linear_qkv.", ".query_key_value."},
                                  {".linear_proj.", ".dense."},
                                  {".pre_mlp_layernorm.", ".post_attention_layernorm."},
                                  {".linear_fc1.", ".dense_h_to_4h."},
                                  {".linear_fc2.", ".dense_4h_to_h."},
                                  {".layer_norm.", ".layernorm."}}) {
    replace(before, now, then);
  }
  std::vector<std::string> older;
  if (const std::size_t end = before.find('.'); before.starts_with("decoder.") || before.starts_with("encoder.")) {
    for (const char* stack : {"language_model.encoder", "language_model.transformer"}) {
      older.push_back(stack + before.substr(end));
      older.push_back(older.back());
      replace(older.back(), ".self_attention.", ".attention.");
    }
  } else if (before.starts_with("lm_head.") || before.starts_with("binary_head.")) {
    older.push_back(before);
  } else {
    older.push_back("language_model." + before);
  }
  for (const std::string& name : older) {  // norms had both names
    names.push_back(name);
    names.push_back(name);
    replace(names.back(), "layernorm.", "norm.");
  }
  return names;
}

bool is_megatron_bert_tensor(std::string_view tensor) { return tensor == "lm_head.dense.weight"; }

bool is_megatron_buffer(std::string_view tensor) {
  constexpr std::string_view suffixes[] = {"._extra_state", ".inv_freq", ".position_ids"};
  return std::ranges::any_of(suffixes, [&](std::string_view suffix) { return tensor.ends_with(suffix); });
}

int megatron_split_dimension(std::string_view tensor) {
  const auto ends = [&](std::initializer_list<std::string_view> suffixes) {
    return std::ranges::any_of(suffixes, [&](std::string_view suffix) { return tensor.ends_with(suffix); });
  };
  // The linear layers of BERT's heads are replicated.
  if (tensor.find("lm_head.dense.") != tensor.npos || tensor.find("pooler.dense.") != tensor.npos) return -1;
  if (ends({"word_embeddings.weight", "output_layer.weight", "output_layer.bias", "lm_head.bias",
            "word_embeddings_for_head.weight", "linear_qkv.weight", "linear_qkv.bias", "query_key_value.weight",
            "query_key_value.bias", "linear_fc1.weight", "linear_fc1.bias", "dense_h_to_4h.weight",
            "dense_h_to_4h.bias"})) {
    return 0;
  }
  return ends({"linear_proj.weight", "linear_fc2.weight", ".dense.weight", "dense_4h_to_h.weight"}) ? 1 : -1;
}

}  // namespace trireme::exchange
