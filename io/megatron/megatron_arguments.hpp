#pragma once

#include <string>

#include "io/pickle/pickle.hpp"
#include "src/exchange/megatron.hpp"
#include "src/model/model_config.hpp"

namespace trireme::io {

/// Model that the options of a run of Megatron-LM describe.
struct MegatronModel {
  model::ModelConfig config;  ///< its vocabulary is the padded one where `vocabulary_is_padded`
  bool vocabulary_is_padded = false;
  std::int64_t padded_vocabulary = 0;  ///< 0: not stated
  exchange::RotaryLayout rotary = exchange::RotaryLayout::halves;
  std::int64_t tensor_size = 1;
  std::int64_t pipeline_size = 1;
  /// The head of masked tokens has the exact GELU, the layers its approximation by tanh: here both have the latter.
  bool has_two_gelus = false;
};

/// Reads the `args` of a checkpoint, an argparse.Namespace of any version, which do not tell the family. `path` is for
/// messages. One DataError lists all parts that no model here has.
MegatronModel megatron_model(const PickleValue& arguments, model::ModelFamily family, const std::string& path);

}  // namespace trireme::io
