#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "src/exchange/model_class.hpp"
#include "src/exchange/tensor_map.hpp"

namespace trireme::exchange {

/// A setting of config.json that all models of a class have alike here. Without it a file has the same value.
struct FixedSetting {
  std::string_view key;
  std::variant<bool, std::int64_t, std::string_view> value;
  std::string_view reason;  ///< for another value
  bool is_written = false;
};

/// A model class of transformers.
struct ClassFacts {
  ModelClass id;
  std::string_view name;  ///< "LlamaForCausalLM"
  std::string_view type;  ///< model_type of its config.json
  /// Words of model::set_fields: the differences from GPT-2 of the model whose config.json has no settings.
  std::string defaults;
  /// Returns whether this class is the nearest to a model of the family.
  bool (*is_nearest)(const model::ModelConfig&);
  std::vector<FixedSetting> fixed = {};
  /// attention_bias and mlp_bias are settings; else only queries, keys and values have biases, if any.
  bool has_bias_settings = false;
  bool has_window = false;  ///< sliding_window is a setting: one window in all layers, itself included
  model::ModelOutput output = model::ModelOutput::pretraining;
};

/// Model classes whose tensors and settings have the same names. One file a family.
struct Family {
  std::vector<ClassFacts> classes;
  ConfigForm form;  ///< form of config.json
  /// Returns whether a model has the parts of this family rather than of another.
  bool (*is_nearest)(const model::ModelConfig&);
  /// Maps all parameters of a model.
  TensorMap (*map)(const model::ModelConfig&, const MapOptions&);
  std::string_view base;  ///< prefix of tensors, which files of the model without its head lack
  /// Ends of tensors' names, and what they were in older files.
  std::vector<std::pair<std::string_view, std::string_view>> older = {};
  std::vector<std::string_view> buffers = {};  ///< ends of the names of tensors that are not weights
  bool may_lack_tokens = false;                ///< files may have fewer rows of tokens than the model: see MapOptions
};

/// All families. Of those that are nearest to a model the first one counts.
std::span<const Family> families();

Family gpt2_family();
Family llama_family();
Family mistral_family();
Family qwen_family();
Family bert_family();

/// Defaults common to Llama and its relatives.
inline constexpr std::string_view llama_defaults =
    "num-layers 32 hidden-size 4096 num-attention-heads 32 normalization RMSNorm swiglu position-embedding-type rope "
    "disable-bias-linear layernorm-epsilon 1e-6 untie-embeddings-and-output-weights ";
/// Map of a Llama, and of the families that name their tensors alike.
TensorMap map_llama(const model::ModelConfig& config, const MapOptions& options);

/// Weight and bias of a norm or linear layer, those that the model has, each as one tensor.
void map_layer(TensorMapBuilder& map, const std::string& parameter, const std::string& tensor);

}  // namespace trireme::exchange
