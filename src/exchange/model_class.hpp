#pragma once

#include <string>
#include <string_view>

#include "src/model/fields.hpp"

namespace trireme::exchange {

/// Model classes of Hugging Face's transformers that this program's models can be.
enum class ModelClass { gpt2, llama, qwen2, qwen3, bert_pretraining, bert_classes, bert_choices, bert_spans };

/// "GPT2LMHeadModel" ...
std::string_view name_of(ModelClass model_class);
/// All names, for messages.
std::string model_class_names();
/// Returns the class of this name; DataError, with the known ones, for another name.
ModelClass model_class_from(std::string_view name);
bool is_bert(ModelClass model_class);

/// Returns the model of a class whose config.json has no settings.
model::ModelConfig class_defaults(ModelClass model_class);
/// Returns the key of a field in the config.json of a class; empty where the class has no such setting.
std::string_view config_key(const model::Field& field, ModelClass model_class);

/// Returns the class that computes the same as a model of this shape. Throws one ConfigError that lists every part of
/// the model that no class has, with the reason.
ModelClass model_class_of(const model::ModelConfig& config);

}  // namespace trireme::exchange
