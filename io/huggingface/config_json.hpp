#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/backend/kernels/gemm.hpp"
#include "src/exchange/model_class.hpp"
#include "src/exchange/tensor_map.hpp"

namespace trireme::io {

/// Names of activations in transformers; the first one of each is written.
inline constexpr std::array<std::pair<const char*, Activation>, 6> huggingface_activations{
    {{"gelu_new", Activation::gelu_tanh},
     {"gelu_pytorch_tanh", Activation::gelu_tanh},
     {"gelu_fast", Activation::gelu_tanh},
     {"gelu", Activation::gelu_erf},
     {"gelu_python", Activation::gelu_erf},
     {"relu2", Activation::squared_relu}}};

/// Returns whether the weights of a token's experts are divided by their sum, after sigmoid scores: norm_topk_prob.
inline bool normalises_weights(const model::ExpertConfig& experts) {
  return experts.score == RouterScore::sigmoid && experts.per_token > 1;
}

/// Model described by Hugging Face's config.json.
struct HuggingFaceModel {
  const exchange::ModelClass* model_class = nullptr;
  model::ModelConfig config;  ///< its vocabulary is the number of rows of the embedding
  exchange::RotaryLayout rotary = exchange::RotaryLayout::halves;
  std::optional<std::int64_t> bos, pad;  ///< ids that begin texts and fill batches, if any
  std::vector<std::int64_t> ends;        ///< ids that end texts
  /// Modules that predict further tokens by the file. `config` has none: transformers' files lack their tensors.
  std::int64_t ahead_depths = 0;
  std::vector<std::string> labels = {};  ///< names of a task's classes; empty unless all are named
};

/// Parses config.json; `path` is for messages. Missing settings have the defaults of transformers. Throws DataError if
/// it is damaged, of an unknown model class, or has unsupported settings: the message lists all of them with reasons.
HuggingFaceModel parse_config_json(const std::string& text, const std::string& path);
HuggingFaceModel read_config_json(const std::string& path);

/// Returns the contents of config.json for a model that `exchange::model_class_of` accepts, and of
/// generation_config.json. `dtype` is that of the tensors. Both name the special ids; no beginning is null.
std::string config_json(const HuggingFaceModel& model, DType dtype);
std::string generation_config_json(const HuggingFaceModel& model);

}  // namespace trireme::io
