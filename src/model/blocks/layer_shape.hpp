#pragma once

#include <algorithm>

#include "src/backend/kernels/dropout.hpp"
#include "src/backend/kernels/experts.hpp"
#include "src/model/model_config.hpp"
#include "src/parallel/tensor/row_chunk.hpp"
#include "src/tensor/memory.hpp"

namespace trireme::model {

/// Extents of one micro-batch in one transformer layer on one rank of a tensor group.
struct LayerShape {
  std::int64_t s = 0;        ///< sequence, or this context rank's shard of it
  std::int64_t s_local = 0;  ///< rank's positions of the residual stream: s, or s / t with sequence parallelism
  std::int64_t b = 0;        ///< micro-batch
  std::int64_t h = 0;        ///< hidden
  std::int64_t a_local = 0;  ///< query heads of this rank
  std::int64_t d = 0;        ///< head size
  DType dtype = DType::fp32;
  std::int64_t kv_local = 0;  ///< heads of keys and values of this rank
  bool causal = true;         ///< positions attend to themselves and earlier ones; false: to the full sequence
  Positions positions;        ///< positions of the s rows
  /// AttentionProblem::lengths of the micro-batch: unpadded positions of each sample; null: all.
  const std::int32_t* lengths = nullptr;
  const std::int32_t* first_visible = nullptr;  ///< AttentionProblem::first_visible of the micro-batch
  const std::int32_t* position_ids = nullptr;   ///< RotaryHeads::position_ids of the micro-batch
  std::int64_t v = 0;                           ///< channels of a head of values, at most d; 0: d
  bool latent = false;                          ///< latent attention
  int row_chunks = 1;                           ///< TensorContext::row_chunks; divides s_local
  bool limits_experts = true;                   ///< StageMode::limits_experts

  /// Throws ConfigError if `tensor_size` does not divide the heads, the columns of feed-forward blocks or, with
  /// sequence parallelism or other `expert_tensor_size`, the sequence; or if that does not divide the columns of
  /// experts.
  static LayerShape of(const ModelConfig& config, std::int64_t s, std::int64_t b, int tensor_size,
                       bool sequence_parallel, DType dtype, int expert_tensor_size) {
    TRIREME_CHECK(config.heads % tensor_size == 0 && config.ffn_hidden % tensor_size == 0, ConfigError,
                  "{} attention heads and {} feed-forward columns do not split over {} tensor ranks; "
                  "<tensor_model_parallel_size> must divide both",
                  config.heads, config.ffn_hidden, tensor_size);
    TRIREME_CHECK(config.kv_heads() % tensor_size == 0, ConfigError,
                  "<num_query_groups> {}: heads of keys and values do not split over {} tensor ranks; "
                  "<tensor_model_parallel_size> must divide them",
                  config.kv_heads(), tensor_size);
    const bool folds_experts = config.experts.any() && expert_tensor_size != tensor_size;
    TRIREME_CHECK(
        folds_experts || !config.experts.any() ||
            (config.expert_ffn_hidden() % tensor_size == 0 && config.experts.shared_hidden % tensor_size == 0),
        ConfigError,
        "<moe_ffn_hidden_size> {}, <moe_shared_expert_intermediate_size> {}: experts do not split over {} "
        "tensor ranks; <tensor_model_parallel_size> must divide both",
        config.expert_ffn_hidden(), config.experts.shared_hidden, tensor_size);
    TRIREME_CHECK(!folds_experts || config.expert_ffn_hidden() % expert_tensor_size == 0, ConfigError,
                  "<moe_ffn_hidden_size> {}: experts do not split over {} ranks; <expert_tensor_parallel_size> must "
                  "divide it",
                  config.expert_ffn_hidden(), expert_tensor_size);
    TRIREME_CHECK(!folds_experts || config.experts.shared_hidden % tensor_size == 0, ConfigError,
                  "<moe_shared_expert_intermediate_size> {}: the shared expert does not split over {} tensor ranks; "
                  "<tensor_model_parallel_size> must divide it",
                  config.experts.shared_hidden, tensor_size);
    TRIREME_CHECK(!folds_experts || s % tensor_size == 0, ConfigError,
                  "<expert_tensor_parallel_size> {}: a sequence of {} (of one context rank) does not split over {} "
                  "tensor ranks, each of which sends its tokens to experts; <seq_length> over "
                  "<context_parallel_size> must be a multiple of {}",
                  expert_tensor_size, s, tensor_size, tensor_size);
    TRIREME_CHECK(!sequence_parallel || s % tensor_size == 0, ConfigError,
                  "<sequence_parallel>: a sequence of {} (of one context rank) does not split over {} tensor ranks; "
                  "<seq_length> over <context_parallel_size> must be a multiple of {}",
                  s, tensor_size, tensor_size);
    const double max_width =
        static_cast<double>(std::max({config.hidden, config.attention_columns(), config.ffn_hidden, config.vocabulary,
                                      config.experts.per_token * config.expert_ffn_hidden()}));
    const double elements = static_cast<double>(s) * static_cast<double>(b) * max_width;
    TRIREME_CHECK(
        elements < 1e15, ConfigError,
        "a micro-batch of {} sequences of {} tokens: activations of {:.1g} elements are more than any machine "
        "holds. Try a smaller <micro_batch_size> or <seq_length>.",
        b, s, elements);
    LayerShape shape{s,
                     sequence_parallel ? s / tensor_size : s,
                     b,
                     config.hidden,
                     config.heads / tensor_size,
                     config.head_dim(),
                     dtype,
                     config.kv_heads() / tensor_size,
                     config.causal(),
                     {}};
    shape.v = config.value_dim();
    shape.latent = config.latent.used;
    return shape;
  }

  std::int64_t rows() const { return s * b; }
  parallel::RowChunk chunk(int index) const { return {index, row_chunks}; }
  /// First of the s positions that a chunk of the residual stream has on this rank of the tensor group; the others
  /// follow it.
  std::int64_t first_of(parallel::RowChunk chunk, int tensor_rank) const {
    const std::int64_t count = s_local / chunk.count;
    return s_local == s ? chunk.index * count : chunk.index * (s / chunk.count) + tensor_rank * count;
  }
  /// Calls `visit` for each of the fewest chunks whose rows have consecutive positions of the s.
  template <class Visit>
  void for_each_run(const Visit& visit) const {
    const int count = s_local == s ? 1 : row_chunks;
    for (int i = 0; i < count; ++i) visit(parallel::RowChunk{i, count});
  }
  /// Positions of a chunk's rows of the residual stream on this rank of the tensor group.
  Positions residual_positions(parallel::RowChunk chunk, int tensor_rank) const {
    return positions.from(first_of(chunk, tensor_rank));
  }
  /// Rows of the residual stream on this rank.
  std::int64_t local_rows() const { return s_local * b; }
  /// Columns of this rank's queries, and of its output of the heads. The latter are d for each head: those from
  /// value_dim() on are 0.
  std::int64_t attention_columns() const { return a_local * d; }
  std::int64_t value_dim() const { return v == 0 ? d : v; }
  /// Columns of this rank's output of the heads without those zeros.
  std::int64_t value_columns() const { return a_local * value_dim(); }
  /// Returns whether the queries of all positions precede their keys and values in memory.
  bool queries_first() const { return latent || kv_local != a_local; }
  /// Columns of this rank's keys, and of its values.
  std::int64_t kv_columns() const { return kv_local * d; }
  /// Columns of this rank's queries, keys and values together.
  std::int64_t qkv_columns() const { return attention_columns() + 2 * kv_columns(); }
  /// Allocates [s, b, columns] in the training type.
  TensorView allocate(Arena& arena, std::int64_t columns) const { return arena.allocate(dtype, {s, b, columns}); }
  /// Allocates a matrix [s b, columns] in the training type.
  TensorView allocate_rows(Arena& arena, std::int64_t columns) const {
    return arena.allocate(dtype, {rows(), columns});
  }
  /// Allocates a tensor like the residual stream: [s_local, b, h].
  TensorView allocate_residual(Arena& arena) const { return arena.allocate(dtype, {s_local, b, h}); }
  /// Views a tensor like the residual stream as a matrix: [local_rows, h].
  template <class View>
  View as_rows(View residual) const {
    return residual.reshape({local_rows(), h});
  }
  /// Allocates one number for each query of each head: [b, a_local, s].
  TensorView allocate_log_sum_exp(Arena& arena) const {
    return arena.allocate(accumulation_type(dtype), {b, a_local, s});
  }
};

/// Inputs of one micro-batch's dropout masks, for every layer and site. In evaluation both probabilities are 0.
struct DropoutPlan {
  double hidden = 0;
  double attention = 0;
  double router_jitter = 0;  ///< RouterJitter::eps
  std::uint64_t seed = 0;
  const std::int64_t* samples = nullptr;  ///< device memory, [b]: numbers of the samples since the start of training

  /// `layer` counts over the full model from 0. The caller sets the positions of hidden states.
  Dropout at(int layer, DropoutSite site) const {
    const double probability = site == DropoutSite::attention_scores ? attention : hidden;
    if (probability == 0) return {};
    return {probability, seed, layer, site, samples};
  }
  /// Noise of a router whose input has all rows of this rank's sequences, at `of_rows`.
  RouterJitter router_noise(int layer, const Positions& of_rows) const {
    if (router_jitter == 0) return {};
    Dropout random(0, seed, layer, DropoutSite::router_input, samples);
    random.positions = of_rows;
    return {router_jitter, random};
  }
};

}  // namespace trireme::model
