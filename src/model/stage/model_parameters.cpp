#include "src/model/stage/model_parameters.hpp"

#include <algorithm>
#include <string>

#include "src/model/stage/ahead_prediction.hpp"

namespace trireme::model {
namespace {

using parallel::Parameter;
using parallel::ParameterRole;
using parallel::VocabularyPartition;

/// Adds a tensor [vocabulary, ...] split along the vocabulary.
Parameter& add_split_by_token(ParameterList& list, const std::string& name, ParameterRole role, const Shape& shape,
                              const VocabularyPartition& vocabulary) {
  Parameter& parameter = list.replicated(name, role, shape);
  parameter.replicated = list.shard().tensor_size == 1;
  parameter.gradient_is_partial = false;
  parameter.rows_are_tokens = shape.rank() == 2;
  // If all rows of a rank are padding, its box is empty, at the end of the vocabulary.
  parameter.box.offset[0] = std::min(vocabulary.first(), vocabulary.size());
  parameter.box.extent[0] = vocabulary.true_rows();
  parameter.storage[0] = vocabulary.rows();
  return parameter;
}

/// Adds the token embedding, on the first stage and if it reads the table on the last.
Parameter& add_token_table(ParameterList& list, const ModelConfig& config, const VocabularyPartition& vocabulary) {
  Parameter& table = add_split_by_token(list, token_table_name(config), ParameterRole::embedding,
                                        {config.vocabulary, config.hidden}, vocabulary);
  table.tied = config.has_table_in_head() && !(list.shard().first_stage && list.shard().last_stage);
  return table;
}

void add_embeddings(ParameterList& list, const ModelConfig& config, const VocabularyPartition& vocabulary) {
  add_token_table(list, config, vocabulary);
  if (config.position_embedding == PositionEmbedding::learned_absolute) {
    list.replicated(position_table_name(config), ParameterRole::embedding, {config.max_positions, config.hidden});
  }
  if (config.has_token_types()) list.replicated("emb.type", ParameterRole::embedding, {2, config.hidden});
  if (config.post_norm() || config.embedding_norm) {
    Norm::declare(list, config, embedding_norm_name(), config.hidden);
  }
}

void add_heads(ParameterList& list, const ModelConfig& config, const VocabularyPartition& vocabulary) {
  const std::int64_t h = config.hidden;
  if (!config.post_norm()) Norm::declare(list, config, outer_norm_name(config), h);
  if (!config.predicts_tokens()) {
    if (config.has_task_pooler()) list.dense("pooler", h, h);
    list.dense(task_head_name(config), config.task_outputs(), h, ParameterRole::output_matrix);
    return;
  }
  if (config.is_bert()) {
    list.dense("mlm.dense", h, h);
    Norm::declare(list, config, "mlm.ln", h);
    add_split_by_token(list, "mlm.out.bias", ParameterRole::bias, {config.vocabulary}, vocabulary);
  }
  if (config.has_binary_head()) {
    list.dense("pooler", h, h);
    list.dense("sop", 2, h, ParameterRole::output_matrix);
  }
  if (!config.tied_output) {
    add_split_by_token(list, "lm_head.weight", ParameterRole::output_matrix, {config.vocabulary, h}, vocabulary);
  }
  if (config.has_table_in_head() && !list.shard().first_stage) {
    add_token_table(list, config, vocabulary).shared_copy = true;
  }
  if (config.predicts_ahead()) AheadPrediction::declare(list, config);
}

/// Elements of the parameters with `counts` that compute a token: of a layer's experts, as many as a token uses.
template <class Predicate>
std::int64_t active_numel(const std::vector<Parameter>& list, const ExpertConfig& experts, const Predicate& counts) {
  std::int64_t of_all = 0, of_experts = 0;
  for (const Parameter& parameter : list) {
    if (!counts(parameter)) continue;
    const bool is_expert = parameter.name.find(".mlp.experts.") != std::string::npos;
    (is_expert ? of_experts : of_all) += parameter.shape.numel();
  }
  return of_all + (experts.any() ? of_experts / experts.count * experts.per_token : 0);
}

}  // namespace

std::vector<Parameter> model_parameters(const ModelConfig& config, const StageShard& shard,
                                        const VocabularyPartition& vocabulary) {
  ParameterList list(shard, config.adapters);
  if (shard.first_stage) {
    add_embeddings(list, config, vocabulary);
    list.end_unit();
  }
  for (const LayerRange& chunk : shard.chunks) {
    for (int layer = chunk.first_layer; layer < chunk.first_layer + chunk.layers; ++layer) {
      TransformerLayer::declare(list, config, layer);
      list.end_unit();
    }
  }
  if (shard.last_stage) {
    add_heads(list, config, vocabulary);
    list.end_unit();
  }
  return list.take();
}

std::vector<Parameter> all_parameters(const ModelConfig& config) {
  const StageShard whole{.chunks = {{0, config.layers}}};
  return model_parameters(config, whole, VocabularyPartition(config.vocabulary, 0, 1, 1));
}

std::int64_t parameter_count(const ModelConfig& config) {
  std::int64_t sum = 0;
  for (const Parameter& parameter : all_parameters(config)) sum += parameter.shape.numel();
  return sum;
}

std::int64_t trained_parameter_count(const ModelConfig& config) {
  std::int64_t sum = 0;
  for (const Parameter& parameter : all_parameters(config))
    sum += parameter.frozen || !parameter.has_gradient ? 0 : parameter.shape.numel();
  return sum;
}

std::int64_t active_parameter_count(const ModelConfig& config) {
  return active_numel(all_parameters(config), config.experts, [](const Parameter&) { return true; });
}

double model_flops(const ModelConfig& config, std::int64_t batch, std::int64_t s, std::int64_t predictions) {
  const auto h = static_cast<double>(config.hidden);
  double matrices = 0, keys = 0;  // elements, and keys of a query, summed over the layers
  const StageShard shard;
  for (int layer = 0; layer < config.all_layers(); ++layer) {
    ParameterList list(shard, config.adapters);
    TransformerLayer::declare(list, config, layer);
    const std::vector<Parameter> parameters = list.take();
    // Frozen matrices lack one of three products.
    matrices += static_cast<double>(active_numel(parameters, config.experts, parallel::is_hidden_matrix)) *
                (config.adapters.any() ? 2.0 / 3 : 1);
    matrices += static_cast<double>(active_numel(
        parameters, config.experts, [](const Parameter& parameter) { return parallel::is_adapter(parameter.role); }));
    const std::int64_t left = config.window.of(config.kind_of(layer));
    keys += static_cast<double>(left < 0 ? s : std::min(s, left + 1));
  }
  // Multiply-adds a token, forward: the matrices, scores and weighted sums; a prediction: the logits. Times 2 for
  // FLOPs, times 3 for forward and the two halves of backward.
  const double of_logits = config.adapters.any() ? 2.0 / 3 : 1;
  const double depths = config.predicts_ahead() ? config.ahead.depths : 0;
  const double per_token =
      matrices + depths * 2 * h * h + keys * static_cast<double>(config.attention_columns() + config.value_columns());
  const double per_prediction =
      ((1 + depths) * static_cast<double>(config.vocabulary) * h + (config.is_bert() ? h * h : 0)) * of_logits;
  const bool selects = config.is_bert() && predictions > 0;
  const double predicted = config.predicts_tokens() ? static_cast<double>(selects ? std::min(predictions, s) : s) : 0;
  return 6 * static_cast<double>(batch) * (static_cast<double>(s) * per_token + predicted * per_prediction);
}

}  // namespace trireme::model
