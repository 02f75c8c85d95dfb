#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/exchange/tensor_map.hpp"

/// Names and layouts of the tensors of Megatron-LM's GPT and BERT models.
namespace trireme::exchange {

/// Order of the rows of queries, keys and values in one tensor. By versions of checkpoints: parts_of_shards, 0: each
/// tensor rank has its heads of queries, then of keys, then of values. channels, 1: a head's channels one by one, each
/// for the query, the key and the value. groups, from 2 on: for each head of keys, its heads of queries, itself, and
/// its head of values.
enum class MegatronHeads { parts_of_shards, channels, groups };

struct MegatronLayout {
  MegatronHeads heads = MegatronHeads::groups;
  RotaryLayout rotary = RotaryLayout::halves;
  /// Tensor ranks whose shards are joined as they are: gate and up of SwiGLU, and `parts_of_shards`, alternate.
  int shards = 1;
  std::int64_t vocabulary_rows = 0;  ///< rows of the token embedding, with padding
};

/// Map of a model in the names of Megatron-core, norms apart from the linear layers. ConfigError if the layout and
/// the model do not go together.
TensorMap megatron_tensor_map(const model::ModelConfig& config, const MegatronLayout& layout);

/// Returns other names of a tensor, best first: of norms in the linear layers behind them, and of Megatron-LM before
/// its core.
std::vector<std::string> megatron_other_names(const std::string& tensor);

/// Returns whether a tensor is one that a BERT alone has.
bool is_megatron_bert_tensor(std::string_view tensor);

/// Returns whether a tensor is not one of the weights.
bool is_megatron_buffer(std::string_view tensor);

/// Dimension along which the tensor ranks divide a tensor of one of these names; -1: all have the whole.
int megatron_split_dimension(std::string_view tensor);

}  // namespace trireme::exchange
