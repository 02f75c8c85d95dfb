#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/exchange/model_class.hpp"
#include "src/exchange/tensor_map.hpp"

/// Names and layouts of the tensors of transformers' model classes.
namespace trireme::exchange {

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
