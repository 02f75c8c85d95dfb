#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "src/backend/kernels/gemm.hpp"
#include "src/exchange/model_class.hpp"
#include "src/exchange/tensor_map.hpp"

namespace trireme::io {

/// Names that transformers has for activations; the first one of each is written.
inline constexpr std::array<std::pair<const char*, Activation>, 4> huggingface_activations{
    {{"gelu_new", Activation::gelu_tanh},
     {"gelu_pytorch_tanh", Activation::gelu_tanh},
     {"gelu", Activation::gelu_erf},
     {"relu2", Activation::squared_relu}}};

/// A model as Hugging Face's config.json describes it.
struct HuggingFaceModel {
  exchange::ModelClass model_class = exchange::ModelClass::gpt2;
  model::ModelConfig config;  ///< its vocabulary has the rows of the tensors
  exchange::RotaryLayout rotary = exchange::RotaryLayout::halves;
  std::optional<std::int64_t> end_of_text;  ///< id that ends texts, where one is named
};

/// Reads config.json; the path is for messages. Settings that are missing have the defaults of transformers. Throws
/// DataError if it is damaged or of an unknown model class, and one that lists every setting that this program's
/// models do not have, with the reason.
HuggingFaceModel parse_config_json(const std::string& text, const std::string& path);
HuggingFaceModel read_config_json(const std::string& path);

/// The contents of config.json for a model that `exchange::model_class_of` accepts, and of generation_config.json.
/// `dtype` is that of the tensors.
std::string config_json(const HuggingFaceModel& model, DType dtype);
std::string generation_config_json(const HuggingFaceModel& model);

}  // namespace trireme::io
