#pragma once

#include <vector>

#include "src/exchange/model_class.hpp"

namespace trireme::exchange {

/// All families. NAME.cpp defines NAME_family(), which returns its classes. A model is exported as the first class that
/// fits it.
#define TRIREME_FAMILIES(X) X(gpt2) X(starcoder2) X(phi3) X(llama) X(bert)

#define TRIREME_DECLARE_FAMILY(name) std::vector<ModelClass> name##_family();
TRIREME_FAMILIES(TRIREME_DECLARE_FAMILY)
#undef TRIREME_DECLARE_FAMILY

/// Maps weight and bias of a norm or linear layer, if the model has them, to one tensor each.
void map_layer(TensorMapBuilder& map, const std::string& parameter, const std::string& tensor);

}  // namespace trireme::exchange
