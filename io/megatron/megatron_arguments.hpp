#pragma once

#include <string>

#include "io/pickle/pickle.hpp"
#include "src/exchange/megatron.hpp"
#include "src/model/model_config.hpp"

namespace trireme::io {

/// Model described by the options of a Megatron-LM run.
struct MegatronModel {
  model::ModelConfig config;  ///< its vocabulary is padded if `vocabulary_is_padded`
  bool vocabulary_is_padded = false;
  std::int64_t padded_vocabulary = 0;  ///< 0: not stated
  exchange::RotaryLayout rotary = exchange::RotaryLayout::halves;
  std::int64_t tensor_size = 1;
  std::int64_t pipeline_size = 1;
  /// The masked-LM head uses exact GELU, the layers the tanh approximation. This program uses the latter for both.
  bool has_two_gelus = false;
};

/// Reads the `args` of a checkpoint, an argparse.Namespace of any version. They do not state the `family`. `path` is
/// for messages. DataError lists all unsupported options.
MegatronModel megatron_model(const PickleValue& arguments, model::ModelFamily family, const std::string& path);

}  // namespace trireme::io
