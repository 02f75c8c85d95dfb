#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/exchange/tensor_map.hpp"
#include "src/exchange/tensor_source.hpp"

/// Adapters of linear layers (model::LowRankAdapters) in the format of Hugging Face's PEFT. An adapter of the tensor
/// LAYER.weight is base_model.model.LAYER.lora_A.weight [rank, in] and lora_B.weight [out, rank].
namespace trireme::exchange {

/// Makes an export of `map` add the product of its adapter to each weight that has one, in fp64.
void merge_adapters(TensorMap& map, const model::LowRankAdapters& adapters);

/// Content of PEFT's adapter_config.json.
struct PeftAdapters {
  model::LowRankAdapters adapters;   ///< `targets` are not read
  std::vector<std::string> modules;  ///< layers that have one: the last part of their names, or the full names
  bool is_transposed = false;        ///< the layers' weights are [in, out], as GPT-2's
  /// A layer with an adapter outside of the experts whose name ends like theirs, as in a shared block; empty: none.
  std::string beside_experts;
};

/// Returns the tensors of all adapters of a model without them, whose tensors are those of `map`, for an export. Every
/// layer that is part of a fused weight gets a copy of its A. Sets `peft`, all of it. ConfigError, naming the tensor,
/// if one has several weights with an A each.
TensorMap peft_map(const TensorMap& map, const model::LowRankAdapters& adapters, PeftAdapters& peft);

/// Returns a source of `base` and of the adapters in `peft`, and adds these to `map` and `config`. Layers that are
/// parts of one weight here, such as queries and keys, and have different A get a block of ranks each: A is their A one
/// below the other, B is block-diagonal, and the rank and alpha grow so that the scale stays. Absent adapters are
/// zeros. DataError that lists tensors of `peft` that are not such adapters.
std::unique_ptr<TensorSource> with_adapters(std::unique_ptr<TensorSource> base, TensorSource& peft,
                                            const model::LowRankAdapters& adapters, TensorMap& map,
                                            model::ModelConfig& config);

}  // namespace trireme::exchange
