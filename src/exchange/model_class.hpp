#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/exchange/tensor_map.hpp"
#include "src/model/fields.hpp"

/// Model classes of Hugging Face's transformers that this program's models can be: the facts of each stand in
/// `families`.
namespace trireme::exchange {

enum class ModelClass { gpt2, llama, mistral, qwen2, qwen3, bert_pretraining, bert_classes, bert_choices, bert_spans };

/// Forms of config.json: those whose keys model::ConfigKeys has.
enum class ConfigForm { gpt2, llama, bert };

struct ClassFacts;
/// The facts of a class (families/family.hpp).
const ClassFacts& facts_of(ModelClass model_class);

/// "GPT2LMHeadModel" ...
std::string_view name_of(ModelClass model_class);
/// All names, for messages.
std::string model_class_names();
/// Returns the class of this name; DataError, with the known ones, for another name.
ModelClass model_class_from(std::string_view name);
ConfigForm config_form(ModelClass model_class);
inline bool is_bert(ModelClass model_class) { return config_form(model_class) == ConfigForm::bert; }

/// Returns the model of a class whose config.json has no settings.
model::ModelConfig class_defaults(ModelClass model_class);
/// Returns the key of a field in the config.json of a class; empty if the class has no such setting.
std::string_view config_key(const model::Field& field, ModelClass model_class);

/// Returns the class that computes the same as a model of this shape. Throws one ConfigError that lists every part of
/// the model that no class has, with the reason.
ModelClass model_class_of(const model::ModelConfig& config);

struct MapOptions {
  RotaryLayout rotary = RotaryLayout::halves;
  /// Rows of the tensors that have a row for each token; 0: the model's vocabulary. Of more rows the last are padding
  /// and left out. Fewer are allowed of a BERT: the model's further tokens are never predicted (their bias is -10000).
  std::int64_t vocabulary_rows = 0;
};

/// Names and layouts of the tensors of a class.
TensorMap tensor_map(ModelClass model_class, const model::ModelConfig& config, const MapOptions& options = {});

/// Returns other names under which files have had this tensor, best first: without the prefix of the base model, and
/// names from older files.
std::vector<std::string> other_names(ModelClass model_class, const std::string& tensor);

/// Returns whether a tensor that files may hold is not a weight: masks, positions and frequencies.
bool is_buffer(std::string_view tensor);

}  // namespace trireme::exchange
