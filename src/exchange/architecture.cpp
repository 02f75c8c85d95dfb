#include "src/exchange/architecture.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "src/base/check.hpp"

namespace trireme::exchange {
namespace {

using model::ModelConfig;

constexpr Choice<ModelClass> class_names[] = {{"GPT2LMHeadModel", ModelClass::gpt2},
                                              {"LlamaForCausalLM", ModelClass::llama},
                                              {"Qwen2ForCausalLM", ModelClass::qwen2},
                                              {"Qwen3ForCausalLM", ModelClass::qwen3},
                                              {"BertForPreTraining", ModelClass::bert_pretraining},
                                              {"BertForSequenceClassification", ModelClass::bert_classes},
                                              {"BertForMultipleChoice", ModelClass::bert_choices},
                                              {"BertForQuestionAnswering", ModelClass::bert_spans}};

/// Logit that makes the probability of a token 0 in every type.
constexpr double never = -10000;

/// Parts of a model that a class lacks, each with the reason.
class Misfits {
 public:
  explicit Misfits(std::string_view name) : name_(name) {}
  void expect(bool holds, std::string_view part, std::string_view reason) {
    if (!holds) list_.push_back(fmt::format("{}: {}", part, reason));
  }
  void report() const {
    TRIREME_CHECK(list_.empty(), ConfigError, "the model cannot be exported as {}:\n  {}", name_,
                  fmt::join(list_, "\n  "));
  }

 private:
  std::string_view name_;
  std::vector<std::string> list_;
};

ModelClass bert_class_of(const ModelConfig& config) {
  const ModelClass result = config.output == model::ModelOutput::pretraining ? ModelClass::bert_pretraining
                            : config.output == model::ModelOutput::classes   ? ModelClass::bert_classes
                            : config.output == model::ModelOutput::choices   ? ModelClass::bert_choices
                                                                             : ModelClass::bert_spans;
  Misfits misfits(name_of(result));
  misfits.expect(config.post_norm(), "pre-norm layers",
                 "its layers normalise the sums of residual and branch; only models trained with "
                 "<apply_residual_connection_post_layernorm> are such");
  misfits.expect(config.binary_head, "<bert_no_binary_head>", "it has token types, this model has none");
  misfits.expect(config.normalization == model::Normalization::layer_norm, "RMSNorm", "it has layer normalisation");
  misfits.expect(config.position_embedding == model::PositionEmbedding::learned_absolute, "rotary positions",
                 "it has learned positions");
  misfits.expect(!config.swiglu, "<swiglu>", "its feed-forward block has no gate");
  misfits.expect(config.linear_bias, "<disable_bias_linear>", "its linear layers have biases");
  misfits.expect(config.kv_heads() == config.heads, "<group_query_attention>",
                 "it has as many heads of keys and values as of queries");
  misfits.expect(config.attention_columns() == config.hidden, "<kv_channels>",
                 "its heads have hidden size / heads channels");
  misfits.expect(!config.qk_norm, "<qk_layernorm>", "it does not normalise queries and keys");
  misfits.report();
  return result;
}

ModelClass gpt2_class_of(const ModelConfig& config) {
  Misfits misfits(name_of(ModelClass::gpt2));
  misfits.expect(config.predicts_tokens(), "a task's head", "heads of tasks are exported of a BERT alone");
  misfits.expect(config.normalization == model::Normalization::layer_norm, "RMSNorm", "it has layer normalisation");
  misfits.expect(!config.swiglu, "<swiglu>", "its feed-forward block has no gate");
  misfits.expect(config.linear_bias, "<disable_bias_linear>", "its linear layers have biases");
  misfits.expect(config.kv_heads() == config.heads, "<group_query_attention>",
                 "it has as many heads of keys and values as of queries");
  misfits.expect(config.attention_columns() == config.hidden, "<kv_channels>",
                 "its heads have hidden size / heads channels");
  misfits.expect(!config.qk_norm, "<qk_layernorm>", "it does not normalise queries and keys");
  misfits.report();
  return ModelClass::gpt2;
}

ModelClass llama_class_of(const ModelConfig& config) {
  const ModelClass result = config.qk_norm                           ? ModelClass::qwen3
                            : config.qkv_bias && !config.linear_bias ? ModelClass::qwen2
                                                                     : ModelClass::llama;
  Misfits misfits(name_of(result));
  misfits.expect(config.predicts_tokens(), "a task's head", "heads of tasks are exported of a BERT alone");
  misfits.expect(config.normalization == model::Normalization::rms_norm, "layer normalisation", "it has RMSNorm");
  misfits.expect(config.swiglu, "a feed-forward block without a gate", "it has SwiGLU");
  misfits.expect(config.rotary_percent == 1, "<rotary_percent>", "it rotates all channels of a head");
  if (result == ModelClass::qwen3) {
    misfits.expect(!config.has_qkv_bias(), "biases",
                   "its linear layers have none, or biases of attention that include the output's");
  }
  misfits.report();
  return result;
}

/// A tensor with a row for each token.
void map_tokens(TensorMapBuilder& map, const MapOptions& options, const std::string& parameter,
                const std::string& tensor, std::vector<std::string> copies, double added_value = 0) {
  MappedParameter& mapped = map.parameter(parameter);
  const std::int64_t vocabulary = map.config().vocabulary;
  const std::int64_t rows = options.vocabulary_rows == 0 ? vocabulary : options.vocabulary_rows;
  const std::int64_t common = std::min(rows, vocabulary);
  mapped.added_rows = vocabulary - common;
  mapped.added_value = added_value;
  map.run(parameter, {.count = common,
                      .tensor = map.tensor({.name = tensor,
                                            .shape = mapped.columns == 1 ? Shape{rows} : Shape{rows, mapped.columns},
                                            .padded = rows > common,
                                            .copies = std::move(copies)})});
}

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
  map_tokens(map, options, "wte", "transformer.wte.weight",
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
  if (!config.tied_output) map_tokens(map, options, "lm_head.weight", "lm_head.weight", {});
  return map.finish();
}

TensorMap map_llama(const ModelConfig& config, const MapOptions& options) {
  TensorMapBuilder map(config);
  map_tokens(map, options, "wte", "model.embed_tokens.weight",
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
  if (!config.tied_output) map_tokens(map, options, "lm_head.weight", "lm_head.weight", {});
  return map.finish();
}

TensorMap map_bert(const ModelConfig& config, const MapOptions& options) {
  TensorMapBuilder map(config);
  const std::string embeddings = "bert.embeddings.";
  map_tokens(map, options, "emb.word", embeddings + "word_embeddings.weight",
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
    map_tokens(map, options, "mlm.out.bias", "cls.predictions.bias", {"cls.predictions.decoder.bias"}, never);
    map_linear(map, "sop", "cls.seq_relationship");
  } else if (config.output == model::ModelOutput::spans) {
    map_linear(map, "spans", "qa_outputs");
  } else {
    map_linear(map, "classifier", "classifier");
  }
  return map.finish();
}

}  // namespace

std::string_view name_of(ModelClass model_class) {
  return std::ranges::find(class_names, model_class, &Choice<ModelClass>::value)->name;
}

std::string model_class_names() {
  std::vector<std::string_view> names;
  for (const Choice<ModelClass>& choice : class_names) names.push_back(choice.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

ModelClass model_class_from(std::string_view name) {
  const auto found = std::ranges::find(class_names, name, &Choice<ModelClass>::name);
  TRIREME_CHECK(found != std::end(class_names), DataError, "the model class '{}' is none of those that can be read: {}",
                name, model_class_names());
  return found->value;
}

bool is_bert(ModelClass model_class) { return model_class >= ModelClass::bert_pretraining; }

ModelClass model_class_of(const ModelConfig& config) {
  if (config.is_bert()) return bert_class_of(config);
  return config.position_embedding == model::PositionEmbedding::rope ? llama_class_of(config) : gpt2_class_of(config);
}

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
