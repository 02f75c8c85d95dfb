#include "src/model/model_parameters.hpp"

#include <string>

namespace trireme::model {
namespace {

using parallel::Parameter;
using parallel::ParameterRole;

/// The whole tensor on every tensor rank, for work on the residual stream.
Parameter replicated(std::string name, ParameterRole role, const Shape& shape, const StageShard& shard) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.role = role;
  parameter.shape = shape;
  parameter.box = Box::whole(shape);
  parameter.storage = shape;
  parameter.replicated = true;
  parameter.gradient_is_partial = shard.sequence_parallel;
  return parameter;
}

/// An equal shard along `dimension` for each tensor rank.
Parameter split(std::string name, ParameterRole role, const Shape& shape, int dimension, const StageShard& shard) {
  Parameter parameter = replicated(std::move(name), role, shape, shard);
  parameter.replicated = shard.tensor_size == 1;
  parameter.gradient_is_partial = false;
  parameter.box.extent[dimension] = shape[dimension] / shard.tensor_size;
  parameter.box.offset[dimension] = parameter.box.extent[dimension] * shard.tensor_rank;
  parameter.storage = parameter.box.extent;
  return parameter;
}

/// Appends the parameters of a norm of rows of `width`.
void append_norm_of(std::vector<Parameter>& list, const ModelConfig& config, const std::string& prefix,
                    std::int64_t width, const StageShard& shard) {
  const ParameterRole role = config.norm_1p ? ParameterRole::centred_norm_weight : ParameterRole::norm_weight;
  list.push_back(replicated(prefix + ".weight", role, {width}, shard));
  if (config.normalization == Normalization::layer_norm) {
    list.push_back(replicated(prefix + ".bias", ParameterRole::norm_bias, {width}, shard));
  }
}

void append_norm(std::vector<Parameter>& list, const ModelConfig& config, const std::string& prefix,
                 const StageShard& shard) {
  append_norm_of(list, config, prefix, config.hidden, shard);
}

/// The norm of the heads of queries or keys: one for all heads, of which each tensor rank has some.
void append_head_norm(std::vector<Parameter>& list, const ModelConfig& config, const std::string& prefix,
                      const StageShard& shard) {
  const std::size_t first = list.size();
  append_norm_of(list, config, prefix, config.head_dim(), shard);
  for (std::size_t i = first; i < list.size(); ++i) list[i].gradient_is_partial = shard.tensor_size > 1;
}

/// A weight split along `dimension`, and with `bias` that of its outputs: all dimensions but the last.
void append_column_parallel(std::vector<Parameter>& list, bool bias, const std::string& prefix, const Shape& shape,
                            int dimension, const StageShard& shard) {
  list.push_back(split(prefix + ".weight", ParameterRole::matrix, shape, dimension, shard));
  const Shape outputs(shape.extents().first(static_cast<std::size_t>(shape.rank() - 1)));
  if (bias) list.push_back(split(prefix + ".bias", ParameterRole::bias, outputs, dimension, shard));
}

/// A residual matrix [h, inputs] split along its inputs, and the bias, whole on every rank.
void append_row_parallel(std::vector<Parameter>& list, const ModelConfig& config, const std::string& prefix,
                         std::int64_t inputs, const StageShard& shard) {
  list.push_back(split(prefix + ".weight", ParameterRole::residual_matrix, {config.hidden, inputs}, 1, shard));
  if (config.linear_bias) list.push_back(replicated(prefix + ".bias", ParameterRole::bias, {config.hidden}, shard));
}

void append_layer(std::vector<Parameter>& list, const ModelConfig& config, int layer, const StageShard& shard) {
  const std::string prefix = "h." + std::to_string(layer);
  const std::int64_t h = config.hidden;
  const std::int64_t a = config.heads;
  const std::int64_t d = config.head_dim();
  const std::int64_t f = config.ffn_hidden;
  append_norm(list, config, prefix + ".ln_1", shard);
  if (config.kv_heads() == a) {
    append_column_parallel(list, config.has_qkv_bias(), prefix + ".attn.qkv", {3, a, d, h}, 1, shard);
  } else {
    append_column_parallel(list, config.has_qkv_bias(), prefix + ".attn.q", {a, d, h}, 0, shard);
    append_column_parallel(list, config.has_qkv_bias(), prefix + ".attn.kv", {2, config.kv_heads(), d, h}, 1, shard);
  }
  if (config.qk_norm) {
    append_head_norm(list, config, prefix + ".attn.q_ln", shard);
    append_head_norm(list, config, prefix + ".attn.k_ln", shard);
  }
  append_row_parallel(list, config, prefix + ".attn.proj", a * d, shard);
  append_norm(list, config, prefix + ".ln_2", shard);
  if (config.swiglu) {
    append_column_parallel(list, config.linear_bias, prefix + ".mlp.fc", {2, f, h}, 1, shard);
  } else {
    append_column_parallel(list, config.linear_bias, prefix + ".mlp.fc", {f, h}, 0, shard);
  }
  append_row_parallel(list, config, prefix + ".mlp.proj", f, shard);
}

/// A tensor [vocabulary, ...] split along the vocabulary.
Parameter split_by_token(const std::string& name, ParameterRole role, const Shape& shape, const StageShard& shard,
                         const parallel::VocabularyPartition& vocabulary) {
  Parameter parameter = replicated(name, role, shape, shard);
  parameter.replicated = shard.tensor_size == 1;
  parameter.gradient_is_partial = false;
  parameter.rows_are_tokens = shape.rank() == 2;
  // A rank whose rows are all padding holds an empty box at the end of the vocabulary.
  parameter.box.offset[0] = std::min(vocabulary.first(), vocabulary.size());
  parameter.box.extent[0] = vocabulary.true_rows();
  parameter.storage[0] = vocabulary.rows();
  return parameter;
}

/// The token embedding, on the first stage and where it is the output head too.
Parameter token_table(const ModelConfig& config, const StageShard& shard,
                      const parallel::VocabularyPartition& vocabulary) {
  Parameter table = split_by_token(token_table_name(config), ParameterRole::embedding,
                                   {config.vocabulary, config.hidden}, shard, vocabulary);
  table.tied = config.has_tied_head() && !(shard.first_stage && shard.last_stage);
  return table;
}

/// A linear layer [outputs, h] on work of the residual stream, whole on every rank.
void append_dense(std::vector<Parameter>& list, const ModelConfig& config, const std::string& prefix,
                  std::int64_t outputs, const StageShard& shard, ParameterRole role = ParameterRole::matrix) {
  list.push_back(replicated(prefix + ".weight", role, {outputs, config.hidden}, shard));
  list.push_back(replicated(prefix + ".bias", ParameterRole::bias, {outputs}, shard));
}

void append_embeddings(std::vector<Parameter>& list, const ModelConfig& config, const StageShard& shard,
                       const parallel::VocabularyPartition& vocabulary) {
  list.push_back(token_table(config, shard, vocabulary));
  if (config.position_embedding == PositionEmbedding::learned_absolute) {
    list.push_back(replicated(position_table_name(config), ParameterRole::embedding,
                              {config.max_positions, config.hidden}, shard));
  }
  if (config.has_token_types()) {
    list.push_back(replicated("emb.type", ParameterRole::embedding, {2, config.hidden}, shard));
  }
  if (config.post_norm()) append_norm(list, config, outer_norm_name(config), shard);
}

void append_heads(std::vector<Parameter>& list, const ModelConfig& config, const StageShard& shard,
                  const parallel::VocabularyPartition& vocabulary) {
  if (!config.post_norm()) append_norm(list, config, outer_norm_name(config), shard);
  if (!config.predicts_tokens()) {
    if (config.has_task_pooler()) append_dense(list, config, "pooler", config.hidden, shard);
    append_dense(list, config, task_head_name(config), config.task_outputs(), shard, ParameterRole::output_matrix);
    return;
  }
  if (config.is_bert()) {
    append_dense(list, config, "mlm.dense", config.hidden, shard);
    append_norm(list, config, "mlm.ln", shard);
    list.push_back(split_by_token("mlm.out.bias", ParameterRole::bias, {config.vocabulary}, shard, vocabulary));
  }
  if (config.has_binary_head()) {
    append_dense(list, config, "pooler", config.hidden, shard);
    append_dense(list, config, "sop", 2, shard, ParameterRole::output_matrix);
  }
  if (!config.tied_output) {
    list.push_back(split_by_token("lm_head.weight", ParameterRole::output_matrix, {config.vocabulary, config.hidden},
                                  shard, vocabulary));
  } else if (!shard.first_stage) {
    list.push_back(token_table(config, shard, vocabulary));
    list.back().shared_copy = true;
  }
}

}  // namespace

StageShard StageShard::of(const parallel::PipelineLayout& layout, int tensor_rank, int tensor_size, int pipeline_rank) {
  StageShard shard;
  for (int chunk = 0; chunk < layout.chunks; ++chunk) {
    const int position = chunk * layout.stages + pipeline_rank;
    shard.chunks.push_back({layout.first_layer(position), layout.layers[static_cast<std::size_t>(position)]});
  }
  shard.first_stage = pipeline_rank == 0;
  shard.last_stage = pipeline_rank == layout.stages - 1;
  shard.tensor_rank = tensor_rank;
  shard.tensor_size = tensor_size;
  return shard;
}

std::vector<Parameter> model_parameters(const ModelConfig& config, const StageShard& shard,
                                        const parallel::VocabularyPartition& vocabulary) {
  std::vector<Parameter> list;
  int unit = 0;
  auto end_unit = [&, begin = std::size_t{0}]() mutable {
    for (; begin < list.size(); ++begin) list[begin].unit = unit;
    ++unit;
  };
  if (shard.first_stage) {
    append_embeddings(list, config, shard, vocabulary);
    end_unit();
  }
  for (const LayerRange& chunk : shard.chunks) {
    for (int layer = chunk.first_layer; layer < chunk.first_layer + chunk.layers; ++layer) {
      append_layer(list, config, layer, shard);
      end_unit();
    }
  }
  if (shard.last_stage) {
    append_heads(list, config, shard, vocabulary);
    end_unit();
  }
  return list;
}

}  // namespace trireme::model
