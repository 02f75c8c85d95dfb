#pragma once

#include "src/model/model_config.hpp"

namespace trireme::exchange {

/// A Llama of one layer, whose tensors are checked by hand.
inline model::ModelConfig small_llama() {
  model::ModelConfig config;
  config.layers = 1;
  config.hidden = 8;
  config.heads = 2;
  config.ffn_hidden = 12;
  config.vocabulary = 5;
  config.max_positions = 4;
  config.normalization = model::Normalization::rms_norm;
  config.position_embedding = model::PositionEmbedding::rope;
  config.gated = true;
  config.linear_bias = false;
  config.tied_output = false;
  return config;
}

}  // namespace trireme::exchange
