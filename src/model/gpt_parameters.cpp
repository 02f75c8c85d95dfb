#include "src/model/gpt_parameters.hpp"

#include <string>

namespace trireme::model {
namespace {

using parallel::Parameter;
using parallel::Role;

/// The whole tensor on every tensor rank, for work on the residual stream.
Parameter replicated(std::string name, Role role, const Shape& shape, const GptPlace& place) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.role = role;
  parameter.shape = shape;
  parameter.box = Box::whole(shape);
  parameter.storage = shape;
  parameter.replicated = true;
  parameter.gradient_is_partial = place.sequence_parallel;
  return parameter;
}

/// An equal part along `dimension` for each tensor rank.
Parameter split(std::string name, Role role, const Shape& shape, int dimension, const GptPlace& place) {
  Parameter parameter = replicated(std::move(name), role, shape, place);
  parameter.replicated = place.tensor_size == 1;
  parameter.gradient_is_partial = false;
  parameter.box.extent[dimension] = shape[dimension] / place.tensor_size;
  parameter.box.offset[dimension] = parameter.box.extent[dimension] * place.tensor_rank;
  parameter.storage = parameter.box.extent;
  return parameter;
}

void append_norm(std::vector<Parameter>& list, const GptConfig& config, const std::string& prefix,
                 const GptPlace& place) {
  list.push_back(replicated(prefix + ".weight", Role::norm_weight, {config.hidden}, place));
  if (config.normalization == Normalization::layer_norm) {
    list.push_back(replicated(prefix + ".bias", Role::norm_bias, {config.hidden}, place));
  }
}

/// A weight split along `dimension`, and the bias of its outputs: all dimensions but the last.
void append_column_parallel(std::vector<Parameter>& list, const GptConfig& config, const std::string& prefix,
                            const Shape& shape, int dimension, const GptPlace& place) {
  list.push_back(split(prefix + ".weight", Role::matrix, shape, dimension, place));
  const Shape outputs(shape.extents().first(static_cast<std::size_t>(shape.rank() - 1)));
  if (config.linear_bias) list.push_back(split(prefix + ".bias", Role::bias, outputs, dimension, place));
}

/// A residual matrix [h, inputs] split along its inputs, and the bias, whole on every rank.
void append_row_parallel(std::vector<Parameter>& list, const GptConfig& config, const std::string& prefix,
                         std::int64_t inputs, const GptPlace& place) {
  list.push_back(split(prefix + ".weight", Role::residual_matrix, {config.hidden, inputs}, 1, place));
  if (config.linear_bias) list.push_back(replicated(prefix + ".bias", Role::bias, {config.hidden}, place));
}

void append_layer(std::vector<Parameter>& list, const GptConfig& config, int layer, const GptPlace& place) {
  const std::string prefix = "h." + std::to_string(layer);
  const std::int64_t h = config.hidden;
  const std::int64_t a = config.heads;
  const std::int64_t d = config.head_dim();
  const std::int64_t f = config.ffn_hidden;
  append_norm(list, config, prefix + ".ln_1", place);
  if (config.kv_heads() == a) {
    append_column_parallel(list, config, prefix + ".attn.qkv", {3, a, d, h}, 1, place);
  } else {
    append_column_parallel(list, config, prefix + ".attn.q", {a, d, h}, 0, place);
    append_column_parallel(list, config, prefix + ".attn.kv", {2, config.kv_heads(), d, h}, 1, place);
  }
  append_row_parallel(list, config, prefix + ".attn.proj", h, place);
  append_norm(list, config, prefix + ".ln_2", place);
  if (config.swiglu) {
    append_column_parallel(list, config, prefix + ".mlp.fc", {2, f, h}, 1, place);
  } else {
    append_column_parallel(list, config, prefix + ".mlp.fc", {f, h}, 0, place);
  }
  append_row_parallel(list, config, prefix + ".mlp.proj", f, place);
}

/// A matrix [vocabulary, h] split by rows: the token embedding, or an output head of its own.
Parameter vocabulary_table(const std::string& name, Role role, const GptConfig& config, const GptPlace& place,
                           const parallel::VocabularyPartition& vocabulary) {
  Parameter table = replicated(name, role, {config.vocabulary, config.hidden}, place);
  table.replicated = place.tensor_size == 1;
  table.gradient_is_partial = false;
  // A rank whose rows are all padding holds an empty box at the end of the vocabulary.
  table.box.offset[0] = std::min(vocabulary.first(), vocabulary.size());
  table.box.extent[0] = vocabulary.true_rows();
  table.storage = {vocabulary.rows(), config.hidden};
  table.tied = config.tied_output && !(place.first_stage && place.last_stage);
  return table;
}

}  // namespace

GptPlace GptPlace::of(const parallel::PipelineLayout& layout, int tensor_rank, int tensor_size, int pipeline_rank) {
  GptPlace place;
  for (int chunk = 0; chunk < layout.chunks; ++chunk) {
    const int position = chunk * layout.stages + pipeline_rank;
    place.chunks.push_back({layout.first_layer(position), layout.layers[static_cast<std::size_t>(position)]});
  }
  place.first_stage = pipeline_rank == 0;
  place.last_stage = pipeline_rank == layout.stages - 1;
  place.tensor_rank = tensor_rank;
  place.tensor_size = tensor_size;
  return place;
}

std::vector<Parameter> gpt_parameters(const GptConfig& config, const GptPlace& place,
                                      const parallel::VocabularyPartition& vocabulary) {
  std::vector<Parameter> list;
  int group = 0;
  auto end_group = [&, begin = std::size_t{0}]() mutable {
    for (; begin < list.size(); ++begin) list[begin].group = group;
    ++group;
  };
  if (place.first_stage) {
    list.push_back(vocabulary_table("wte", Role::embedding, config, place, vocabulary));
    if (config.position_embedding == PositionEmbedding::learned_absolute) {
      list.push_back(replicated("wpe", Role::embedding, {config.max_positions, config.hidden}, place));
    }
    end_group();
  }
  for (const LayerRange& chunk : place.chunks) {
    for (int layer = chunk.first_layer; layer < chunk.first_layer + chunk.layers; ++layer) {
      append_layer(list, config, layer, place);
      end_group();
    }
  }
  if (place.last_stage) {
    append_norm(list, config, "ln_f", place);
    if (!config.tied_output) {
      list.push_back(vocabulary_table("lm_head.weight", Role::matrix, config, place, vocabulary));
    } else if (!place.first_stage) {
      list.push_back(vocabulary_table("wte", Role::embedding, config, place, vocabulary));
      list.back().shared_copy = true;
    }
    end_group();
  }
  return list;
}

}  // namespace trireme::model
