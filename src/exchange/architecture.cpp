#include "src/exchange/architecture.hpp"

#include <algorithm>

#include "src/base/check.hpp"

namespace trireme::exchange {
namespace {

using model::ModelConfig;

/// Logit that makes the probability of a token 0 in every type.
constexpr double never = -10000;

void map_norm(TensorMapBuilder& map, const std::string& parameter, const std::string& tensor) {
  for (const char* suffix : {".weight", ".bias"}) {
    if (map.has(parameter + suffix)) map.same(parameter + suffix, tensor + suffix);
  }
}

void map_linear(TensorMapBuilder& map, const std::string& parameter, const std::string& tensor) {
  map_norm(map, parameter, tensor);
}

TensorMap map_gpt2(const ModelConfig& config, const MapOptions& options) {
  TensorMapBuilder map(config);
  map.tokens("wte", "transformer.wte.weight", options.vocabulary_rows,
             config.tied_output ? std::vector<std::string>{"lm_head.weight"} : std::vector<std::string>{});
  map.same("wpe", "transformer.wpe.weight");
  const auto map_conv = [&](const std::string& parameter, const std::string& tensor) {
    map.transposed(parameter + ".weight", tensor + ".weight");
    map.same(parameter + ".bias", tensor + ".bias");
  };
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string ours = layer_prefix(layer);
    const std::string theirs = "transformer." + ours;
    map_norm(map, ours + ".ln_1", theirs + ".ln_1");
    map_conv(ours + ".attn.qkv", theirs + ".attn.c_attn");
    map_conv(ours + ".attn.proj", theirs + ".attn.c_proj");
    map_norm(map, ours + ".ln_2", theirs + ".ln_2");
    map_conv(ours + ".mlp.fc", theirs + ".mlp.c_fc");
    map_conv(ours + ".mlp.proj", theirs + ".mlp.c_proj");
  }
  map_norm(map, "ln_f", "transformer.ln_f");
  if (!config.tied_output) map.tokens("lm_head.weight", "lm_head.weight", options.vocabulary_rows, {});
  return map.finish();
}

TensorMap map_llama(const ModelConfig& config, const MapOptions& options) {
  TensorMapBuilder map(config);
  map.tokens("wte", "model.embed_tokens.weight", options.vocabulary_rows,
             config.tied_output ? std::vector<std::string>{"lm_head.weight"} : std::vector<std::string>{});
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string ours = layer_prefix(layer);
    const std::string theirs = fmt::format("model.layers.{}", layer);
    const std::string attention = theirs + ".self_attn", block = theirs + ".mlp";
    map_norm(map, ours + ".ln_1", theirs + ".input_layernorm");
    for (const std::string suffix : {"weight", "bias"}) {
      if (suffix == "bias" && !config.has_qkv_bias()) continue;
      map.split_heads(ours + ".attn", suffix, attention + ".q_proj." + suffix, attention + ".k_proj." + suffix,
                      attention + ".v_proj." + suffix, options.rotary);
    }
    if (config.qk_norm) {
      map_norm(map, ours + ".attn.q_ln", attention + ".q_norm");
      map_norm(map, ours + ".attn.k_ln", attention + ".k_norm");
    }
    map_linear(map, ours + ".attn.proj", attention + ".o_proj");
    map_norm(map, ours + ".ln_2", theirs + ".post_attention_layernorm");
    for (const std::string suffix : {".weight", ".bias"}) {
      if (suffix == ".bias" && !config.linear_bias) continue;
      map.split_gate(ours + ".mlp.fc" + suffix, block + ".gate_proj" + suffix, block + ".up_proj" + suffix);
    }
    map_linear(map, ours + ".mlp.proj", block + ".down_proj");
  }
  map_norm(map, "ln_f", "model.norm");
  if (!config.tied_output) map.tokens("lm_head.weight", "lm_head.weight", options.vocabulary_rows, {});
  return map.finish();
}

TensorMap map_bert(const ModelConfig& config, const MapOptions& options) {
  TensorMapBuilder map(config);
  const std::string embeddings = "bert.embeddings.";
  map.tokens("emb.word", embeddings + "word_embeddings.weight", options.vocabulary_rows,
             config.predicts_tokens() ? std::vector<std::string>{"cls.predictions.decoder.weight"}
                                      : std::vector<std::string>{});
  map.same("emb.pos", embeddings + "position_embeddings.weight");
  map.same("emb.type", embeddings + "token_type_embeddings.weight");
  map_norm(map, "emb.ln", embeddings + "LayerNorm");
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string ours = layer_prefix(layer);
    const std::string theirs = fmt::format("bert.encoder.layer.{}.", layer);
    for (const std::string suffix : {"weight", "bias"}) {
      const std::string self = theirs + "attention.self.";
      map.split_heads(ours + ".attn", suffix, self + "query." + suffix, self + "key." + suffix,
                      self + "value." + suffix);
    }
    map_linear(map, ours + ".attn.proj", theirs + "attention.output.dense");
    map_norm(map, ours + ".ln_1", theirs + "attention.output.LayerNorm");
    map_linear(map, ours + ".mlp.fc", theirs + "intermediate.dense");
    map_linear(map, ours + ".mlp.proj", theirs + "output.dense");
    map_norm(map, ours + ".ln_2", theirs + "output.LayerNorm");
  }
  if (map.has("pooler.weight")) map_linear(map, "pooler", "bert.pooler.dense");
  if (config.predicts_tokens()) {
    map_linear(map, "mlm.dense", "cls.predictions.transform.dense");
    map_norm(map, "mlm.ln", "cls.predictions.transform.LayerNorm");
    map.tokens("mlm.out.bias", "cls.predictions.bias", options.vocabulary_rows, {"cls.predictions.decoder.bias"},
               never);
    map_linear(map, "sop", "cls.seq_relationship");
  } else if (config.output == model::ModelOutput::spans) {
    map_linear(map, "spans", "qa_outputs");
  } else {
    map_linear(map, "classifier", "classifier");
  }
  return map.finish();
}

}  // namespace

TensorMap tensor_map(ModelClass model_class, const ModelConfig& config, const MapOptions& options) {
  TRIREME_CHECK(is_bert(model_class) || options.vocabulary_rows == 0 || options.vocabulary_rows >= config.vocabulary,
                ConfigError, "the tensors have {} tokens, fewer than the {} of the vocabulary", options.vocabulary_rows,
                config.vocabulary);
  if (is_bert(model_class)) return map_bert(config, options);
  return model_class == ModelClass::gpt2 ? map_gpt2(config, options) : map_llama(config, options);
}

std::vector<std::string> other_names(ModelClass model_class, const std::string& tensor) {
  const std::string_view prefix = is_bert(model_class)              ? "bert."
                                  : model_class == ModelClass::gpt2 ? "transformer."
                                                                    : "model.";
  std::vector<std::string> names;
  if (tensor.starts_with(prefix)) names.push_back(tensor.substr(prefix.size()));
  if (is_bert(model_class)) {
    for (const auto& [now, before] :
         {std::pair{".LayerNorm.weight", ".LayerNorm.gamma"}, {".LayerNorm.bias", ".LayerNorm.beta"}}) {
      if (!tensor.ends_with(now)) continue;
      names.push_back(tensor.substr(0, tensor.size() - std::string_view(now).size()) + before);
    }
  }
  return names;
}

bool is_buffer(std::string_view tensor) {
  constexpr std::string_view suffixes[] = {".attn.bias", ".attn.masked_bias", "embeddings.position_ids",
                                           "embeddings.token_type_ids", ".rotary_emb.inv_freq"};
  return std::ranges::any_of(suffixes, [&](std::string_view suffix) { return tensor.ends_with(suffix); });
}

}  // namespace trireme::exchange
