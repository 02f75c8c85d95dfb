#pragma once

#include <vector>

#include "src/model/parameter_list.hpp"
#include "src/parallel/tensor/vocabulary.hpp"

namespace trireme::model {

/// Returns the parameters of a rank with `shard`, in layout order, before memory is allocated. The units are the
/// embeddings on the first stage, each layer, and the final norm and head on the last stage. `blocks` names the layers'
/// parameters. The output matrix is `lm_head.weight` on the last stage, or the tied token embedding: a last stage that
/// is not the first then holds a shared copy of `wte`.
///
/// Modules that predict further tokens follow the head (AheadPrediction); the last stage then holds the copy of `wte`,
/// too, if it is not the first.
///
/// A BERT's embeddings are `emb.word`, `emb.pos` and `emb.type` [2, hidden]; a post-norm model has `emb.ln.*` instead
/// of `ln_f.*`. Its heads are `mlm.dense.*`, `mlm.ln.*` and `mlm.out.bias` [vocabulary], split like the tied table, and
/// `pooler.*` [hidden, hidden] and `sop.*` [2, hidden]. Models without a binary head lack `emb.type`, `pooler.*` and
/// `sop.*`. A task head replaces the pretraining heads and is not tied: `pooler.*` of a BERT that classifies, then
/// `classifier.*` [outputs, hidden] or `spans.*` [2, hidden].
std::vector<parallel::Parameter> model_parameters(const ModelConfig& config, const StageShard& shard,
                                                  const parallel::VocabularyPartition& vocabulary);

/// Returns the parameters of the entire model with the true vocabulary, as on one rank.
std::vector<parallel::Parameter> all_parameters(const ModelConfig& config);
/// Returns their number of elements. GPT-2 with f = 4 h: L (12 h^2 + 13 h) + V h + S h + 2 h. Llama with q = d heads
/// and k = d kv_heads, d the head size: 2 V h + L (2 h q + 2 h k + 3 h f + 2 h) + h.
std::int64_t parameter_count(const ModelConfig& config);
/// The same without frozen parameters.
std::int64_t trained_parameter_count(const ModelConfig& config);
/// Returns the number of elements that compute one token: in a layer with experts, `experts.per_token` of them, the
/// router and the shared expert. Without experts this is parameter_count().
std::int64_t active_parameter_count(const ModelConfig& config);

/// Returns the model FLOPs of one update on `batch` samples of `s` tokens, forward and backward, with full (not causal)
/// attention and without recomputation: 6 B s (L (m + 2 s q) + V h), m the elements of a layer's matrices, q = d heads.
/// A layer with experts counts those of active_parameter_count(), even if some drop tokens beyond their capacity.
/// For GPT-2 with f = 4 h: 72 B s L h^2 (1 + s / 6 h + V / 12 L h) (Narayanan et al. 2021, arXiv:2104.04473). A layer
/// with a window counts min(s, left + 1) keys for each query instead of s. BERT's masked-token head adds h^2 to V h,
/// and both count for `predictions` tokens of a sample, at most s; 0: for all. Frozen matrices count two thirds. A task
/// head has neither term. D modules that predict further tokens add D layers, 2 D h^2 and D V h.
double model_flops(const ModelConfig& config, std::int64_t batch, std::int64_t s, std::int64_t predictions = 0);

}  // namespace trireme::model
