#pragma once

#include <memory>

#include "src/exchange/tensor_source.hpp"

namespace trireme::exchange {

/// Returns a source with a tensor for each expert. Files of transformers 5 may have those of a layer, X.experts, in
/// two: gate_up_proj [experts, 2 width, hidden], each expert's gate before its up, and down_proj [experts, hidden,
/// width]. Here expert I has X.experts.I.gate_proj.weight, up_proj.weight and down_proj.weight. Other tensors stay; a
/// source without such tensors is returned as it is.
std::unique_ptr<TensorSource> with_single_experts(std::unique_ptr<TensorSource> source);

}  // namespace trireme::exchange
