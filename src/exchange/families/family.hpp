#pragma once

#include <vector>

#include "src/exchange/model_class.hpp"

namespace trireme::exchange {

/// All families. NAME.cpp defines NAME_family(), which returns its classes. A model is exported as the first class that
/// fits it.
#define TRIREME_FAMILIES(X) X(gpt2) X(qwen) X(mistral) X(llama) X(bert)

#define TRIREME_DECLARE_FAMILY(name) std::vector<ModelClass> name##_family();
TRIREME_FAMILIES(TRIREME_DECLARE_FAMILY)
#undef TRIREME_DECLARE_FAMILY

/// Returns a class with Llama's tensors and settings. `defaults` follow those that all such classes share.
ModelClass llama_like(std::string_view name, std::string_view type, std::string_view defaults,
                      bool (*fits)(const model::ModelConfig&));

/// Maps weight and bias of a norm or linear layer, if the model has them, to one tensor each.
void map_layer(TensorMapBuilder& map, const std::string& parameter, const std::string& tensor);

}  // namespace trireme::exchange
