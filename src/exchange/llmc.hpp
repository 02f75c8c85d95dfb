#pragma once

#include <cstdint>

#include "src/exchange/tensor_map.hpp"

namespace trireme::exchange {

/// Map of llm.c's model files, whose tensors come in the order of the file. Each holds that parameter of all layers,
/// one after another, as further rows: "qkvw" is [layers 3 h, h]. Tokens have `padded_vocabulary` rows. ConfigError
/// where that is less than the vocabulary.
TensorMap llmc_tensor_map(const model::ModelConfig& config, std::int64_t padded_vocabulary);

}  // namespace trireme::exchange
