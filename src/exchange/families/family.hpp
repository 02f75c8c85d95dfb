#pragma once

#include <vector>

#include "src/exchange/model_class.hpp"

namespace trireme::exchange {

/// All families. NAME.cpp defines NAME_family(), which returns its classes. A model is exported as the first class that
/// fits it: only classes of the first four have experts.
#define TRIREME_FAMILIES(X) \
  X(deepseek)               \
  X(olmo) X(qwen3_moe) X(mixtral) X(gemma) X(bloom) X(gpt2) X(gpt_neox) X(falcon) X(starcoder2) X(phi3) X(llama) X(bert)

#define TRIREME_DECLARE_FAMILY(name) std::vector<ModelClass> name##_family();
TRIREME_FAMILIES(TRIREME_DECLARE_FAMILY)
#undef TRIREME_DECLARE_FAMILY

/// Returns whether a model predicts the next token and has rotary positions.
bool rotates(const model::ModelConfig& config);
/// Returns whether it also has layer normalisation, and feed-forward blocks without a gate.
bool rotates_plain(const model::ModelConfig& config);
/// Returns whether a model that predicts the next token has experts.
bool has_experts(const model::ModelConfig& config);

/// Returns a class with Llama's parts, settings and tensors; its `map` is `map_llama`. `defaults` follow those that all
/// such classes share.
ModelClass llama_like(std::string_view name, std::string_view type, std::string_view defaults,
                      bool (*fits)(const model::ModelConfig&));

/// Maps weight and bias of a norm or linear layer, if the model has them, to one tensor each.
void map_layer(TensorMapBuilder& map, const std::string& parameter, const std::string& tensor);

/// The same of a norm whose rows are channels of heads, before they rotate.
void map_rotated(TensorMapBuilder& map, const std::string& parameter, const std::string& tensor, RotaryLayout rotary);

/// Maps a part of a layer, `ours` (h.0.attn or h.0.mlp), to the tensors of a layer `theirs` (model.layers.0).
using MapPart = void (*)(TensorMapBuilder& map, const MapOptions& options, const std::string& ours,
                         const std::string& theirs);

/// Maps queries, keys, values and attention's output to one tensor each; further the norms of queries and keys, if any.
void map_attention(TensorMapBuilder& map, const MapOptions& options, const std::string& ours,
                   const std::string& theirs);

/// Maps queries, keys and values of `ours` (h.0.attn), weights or biases (`suffix`), to one tensor [groups, queries of
/// a group + 2, d, ...]: each group has a head of keys and one of values, and the queries that share them come first.
void map_grouped_heads(TensorMapBuilder& map, const std::string& ours, const std::string& suffix,
                       const std::string& tensor, RotaryLayout rotary = RotaryLayout::halves);

/// Last parts of the names of a gated block's tensors.
struct GatedNames {
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
};
/// Maps a gated feed-forward block or expert, `ours`.fc and `ours`.proj, to three tensors: `theirs`.gate_proj and so
/// on.
void map_gated(TensorMapBuilder& map, const std::string& ours, const std::string& theirs, const GatedNames& names = {});
/// Maps a router and its experts to `theirs`.gate.weight and `theirs`.experts.I.
void map_experts(TensorMapBuilder& map, const std::string& ours, const std::string& theirs,
                 const GatedNames& names = {});

/// Maps all parameters of a model with Llama's names of tokens, norms and output, and Gemma's of further norms; the
/// other parts of a layer by `attention` and `block`.
TensorMap map_around(const model::ModelConfig& config, const MapOptions& options, MapPart attention, MapPart block);
/// Maps a dense model with Llama's tensors.
TensorMap map_llama(const model::ModelConfig& config, const MapOptions& options);

}  // namespace trireme::exchange
