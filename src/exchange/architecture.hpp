#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/exchange/tensor_map.hpp"
#include "src/model/model_config.hpp"

/// Model classes of Hugging Face's transformers that this program's models can be.
namespace trireme::exchange {

enum class ModelClass { gpt2, llama, qwen2, qwen3, bert_pretraining, bert_classes, bert_choices, bert_spans };

/// "GPT2LMHeadModel" ...
std::string_view name_of(ModelClass model_class);
/// All names, for messages.
std::string model_class_names();
/// Returns the class of this name; DataError, with the known ones, for another name.
ModelClass model_class_from(std::string_view name);
bool is_bert(ModelClass model_class);

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
/// the names of norms from before 2019.
std::vector<std::string> other_names(ModelClass model_class, const std::string& tensor);

/// Returns whether a tensor that files may hold is none of the weights: masks, positions and frequencies.
bool is_buffer(std::string_view tensor);

}  // namespace trireme::exchange
