#include "src/exchange/model_class.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

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

ModelClass nearest_class(const ModelConfig& config) {
  if (config.is_bert()) {
    return static_cast<ModelClass>(static_cast<int>(ModelClass::bert_pretraining) + static_cast<int>(config.output));
  }
  if (config.position_embedding != model::PositionEmbedding::rope) return ModelClass::gpt2;
  if (config.qk_norm) return ModelClass::qwen3;
  return config.qkv_bias && !config.linear_bias ? ModelClass::qwen2 : ModelClass::llama;
}

/// Returns the difference of a field from the models of a class, for a message.
std::string misfit(const model::Field& field, const ModelConfig& config, const ModelConfig& like) {
  if (field.is_flag()) {
    return field.get(config) == field.flag_value()
               ? fmt::format("{}: no model of the class has it", field.tag())
               : fmt::format("without {}: all models of the class have it", field.tag());
  }
  return fmt::format("{} {}: all models of the class have {}", field.tag(), field.text(config),
                     field.names.empty() ? "the default" : field.text(like));
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

ModelConfig class_defaults(ModelClass model_class) {
  ModelConfig config;
  if (model_class == ModelClass::gpt2) return config;
  if (is_bert(model_class)) {
    model::set_fields(config,
                      "model-type bert apply-residual-connection-post-layernorm gelu erf layernorm-epsilon 1e-12 "
                      "max-position-embeddings 512 vocab-size 30522");
    config.output =
        static_cast<model::ModelOutput>(static_cast<int>(model_class) - static_cast<int>(ModelClass::bert_pretraining));
    // The class itself takes any number of choices; RACE's questions have four.
    if (model_class == ModelClass::bert_choices) config.classes = 4;
    return config;
  }
  model::set_fields(config,
                    "num-layers 32 hidden-size 4096 num-attention-heads 32 normalization RMSNorm swiglu "
                    "position-embedding-type rope disable-bias-linear layernorm-epsilon 1e-6 "
                    "untie-embeddings-and-output-weights");
  model::set_fields(config, model_class == ModelClass::llama
                                ? "ffn-hidden-size 11008 vocab-size 32000 max-position-embeddings 2048"
                                : "ffn-hidden-size 22016 vocab-size 151936 max-position-embeddings 32768 "
                                  "num-query-groups 32");
  if (model_class == ModelClass::qwen2) model::set_fields(config, "add-qkv-bias");
  if (model_class == ModelClass::qwen3) model::set_fields(config, "kv-channels 128 qk-layernorm");
  return config;
}

std::string_view config_key(const model::Field& field, ModelClass model_class) {
  if (is_bert(model_class)) return field.keys.bert;
  return model_class == ModelClass::gpt2 ? field.keys.gpt2 : field.keys.llama;
}

ModelClass model_class_of(const ModelConfig& config) {
  const ModelClass result = nearest_class(config);
  const ModelConfig ours = model::canonical(config), like = model::canonical(class_defaults(result));
  std::vector<std::string> misfits;
  if (!config.is_bert() && !config.predicts_tokens())
    misfits.emplace_back("heads of tasks are exported of a BERT alone");
  for (const model::Field& field : model::fields()) {
    const bool is_stored = !field.attribute.empty() && (field.stored_if == nullptr || field.stored_if(config));
    // An export has plain weights of norms. Only a Llama has the setting of biases.
    const bool is_setting =
        !config_key(field, result).empty() && (field.attribute != "linear_bias" || result == ModelClass::llama);
    if (!is_stored || is_setting || field.attribute == "norm_1p" || field.attribute == "output") continue;
    if (field.get(ours) != field.get(like)) misfits.push_back(misfit(field, ours, like));
  }
  if (config.rotary_scaling.interpolation != 1 && config.rotary_scaling.kind != model::RotaryScalingKind::none) {
    misfits.emplace_back(
        "<rotary_seq_len_interpolation_factor> beside another scaling: the class scales positions in one way");
  }
  TRIREME_CHECK(misfits.empty(), ConfigError, "the model cannot be exported as {}:\n  {}", name_of(result),
                fmt::join(misfits, "\n  "));
  return result;
}

}  // namespace trireme::exchange
