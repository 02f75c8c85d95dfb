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

void append_norm(std::vector<Parameter>& list, const std::string& prefix, std::int64_t h, const GptPlace& place) {
  list.push_back(replicated(prefix + ".weight", Role::norm_weight, {h}, place));
  list.push_back(replicated(prefix + ".bias", Role::norm_bias, {h}, place));
}

void append_layer(std::vector<Parameter>& list, const GptConfig& config, int layer, const GptPlace& place) {
  const std::string prefix = "h." + std::to_string(layer);
  const std::int64_t h = config.hidden;
  const std::int64_t a = config.heads;
  const std::int64_t d = h / a;
  const std::int64_t f = config.ffn_hidden;
  append_norm(list, prefix + ".ln_1", h, place);
  list.push_back(split(prefix + ".attn.qkv.weight", Role::matrix, {3, a, d, h}, 1, place));
  list.push_back(split(prefix + ".attn.qkv.bias", Role::bias, {3, a, d}, 1, place));
  list.push_back(split(prefix + ".attn.proj.weight", Role::residual_matrix, {h, h}, 1, place));
  list.push_back(replicated(prefix + ".attn.proj.bias", Role::bias, {h}, place));
  append_norm(list, prefix + ".ln_2", h, place);
  list.push_back(split(prefix + ".mlp.fc.weight", Role::matrix, {f, h}, 0, place));
  list.push_back(split(prefix + ".mlp.fc.bias", Role::bias, {f}, 0, place));
  list.push_back(split(prefix + ".mlp.proj.weight", Role::residual_matrix, {h, f}, 1, place));
  list.push_back(replicated(prefix + ".mlp.proj.bias", Role::bias, {h}, place));
}

Parameter token_embedding(const GptConfig& config, const GptPlace& place,
                          const parallel::VocabularyPartition& vocabulary) {
  Parameter wte = replicated("wte", Role::embedding, {config.vocabulary, config.hidden}, place);
  wte.replicated = place.tensor_size == 1;
  wte.gradient_is_partial = false;
  // A rank whose rows are all padding holds an empty box at the end of the vocabulary.
  wte.box.offset[0] = std::min(vocabulary.first(), vocabulary.size());
  wte.box.extent[0] = vocabulary.true_rows();
  wte.storage = {vocabulary.rows(), config.hidden};
  wte.tied = !(place.first_stage && place.last_stage);
  return wte;
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
    list.push_back(token_embedding(config, place, vocabulary));
    list.push_back(replicated("wpe", Role::embedding, {config.max_positions, config.hidden}, place));
    end_group();
  }
  for (const LayerRange& chunk : place.chunks) {
    for (int layer = chunk.first_layer; layer < chunk.first_layer + chunk.layers; ++layer) {
      append_layer(list, config, layer, place);
      end_group();
    }
  }
  if (place.last_stage) {
    append_norm(list, "ln_f", config.hidden, place);
    if (!place.first_stage) {
      list.push_back(token_embedding(config, place, vocabulary));
      list.back().shared_copy = true;
    }
    end_group();
  }
  return list;
}

}  // namespace trireme::model
