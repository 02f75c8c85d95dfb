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

void expect_whole_past(const ModelConfig& config, Misfits& misfits) {
  misfits.expect(!config.window.any(), "<window_size>", "its attention sees the whole past");
}

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
  expect_whole_past(config, misfits);
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
  misfits.expect(
      config.rotary_scaling.interpolation == 1 || config.rotary_scaling.kind == model::RotaryScalingKind::none,
      "<rotary_seq_len_interpolation_factor> beside another scaling", "it scales positions in one way");
  expect_whole_past(config, misfits);
  if (result == ModelClass::qwen3) {
    misfits.expect(!config.has_qkv_bias(), "biases",
                   "its linear layers have none, or biases of attention that include the output's");
  }
  misfits.report();
  return result;
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

}  // namespace trireme::exchange
