#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/exchange/tensor_map.hpp"

/// Names and layouts of the tensors of Megatron-LM's GPT and BERT models.
namespace trireme::exchange {

/// Order of the rows of queries, keys and values in one tensor, by version of checkpoints. parts_of_shards, 0: each
/// tensor rank has its query heads, then its key heads, then its value heads. channels, 1: query, key and value of each
/// channel of a head alternate. groups, from 2 on: each group has its query heads, its key head and its value head.
enum class MegatronHeads { parts_of_shards, channels, groups };

struct MegatronLayout {
  MegatronHeads heads = MegatronHeads::groups;
  RotaryLayout rotary = RotaryLayout::halves;
  /// Tensor ranks whose shards were concatenated unchanged: gate and up of SwiGLU, and `parts_of_shards`, alternate.
  int shards = 1;
  std::int64_t vocabulary_rows = 0;  ///< rows of the token embedding, including padding
};

/// Returns the map of a model in the names of Megatron-core, with norms separate from the linear layers. ConfigError if
/// the layout does not suit the model.
TensorMap megatron_tensor_map(const model::ModelConfig& config, const MegatronLayout& layout);

/// Returns other names of a tensor, best first: those of norms fused with the following linear layers, and those of
/// Megatron-LM before Megatron-core.
std::vector<std::string> megatron_other_names(const std::string& tensor);

/// Returns whether only a BERT has this tensor.
bool is_megatron_bert_tensor(std::string_view tensor);

/// Returns whether a tensor is not one of the weights.
bool is_megatron_buffer(std::string_view tensor);

/// Returns the dimension along which a tensor of this name is split over the tensor ranks; -1: it is replicated.
int megatron_split_dimension(std::string_view tensor);

}  // namespace trireme::exchange
