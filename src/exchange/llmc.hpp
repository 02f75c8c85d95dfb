#pragma once

#include <cstdint>

#include "src/exchange/tensor_map.hpp"

namespace trireme::exchange {

/// Returns the map of llm.c's model files, with tensors in the order of the file. Each tensor concatenates the rows of
/// one parameter over all layers: "qkvw" is [layers 3 h, h]. Tokens have `padded_vocabulary` rows. ConfigError if that
/// is less than the vocabulary.
TensorMap llmc_tensor_map(const model::ModelConfig& config, std::int64_t padded_vocabulary);

}  // namespace trireme::exchange
