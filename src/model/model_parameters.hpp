#pragma once

#include <vector>

#include "src/model/model_config.hpp"
#include "src/parallel/parameter.hpp"
#include "src/parallel/pipeline/pipeline_layout.hpp"
#include "src/parallel/tensor/vocabulary.hpp"

namespace trireme::model {

/// Consecutive layers [first_layer, first_layer + layers) of the model.
struct LayerRange {
  int first_layer = 0;
  int layers = 0;
};

/// Shard of a model that one rank holds: its chunks of layers, in the order data passes them, and its tensor-parallel
/// shard of each.
struct StageShard {
  std::vector<LayerRange> chunks;
  bool first_stage = true;  ///< holds the embeddings; reads tokens in chunk 0
  bool last_stage = true;   ///< holds the final norm and the output head; computes the loss in its last chunk
  int tensor_rank = 0;
  int tensor_size = 1;
  bool sequence_parallel = false;  ///< the residual stream is split along the sequence over the tensor ranks

  /// The shard of pipeline rank `pipeline_rank` and tensor rank `tensor_rank` of `tensor_size`.
  static StageShard of(const parallel::PipelineLayout& layout, int tensor_rank, int tensor_size, int pipeline_rank);
};

/// Name of the token embedding, to which an output head may be tied.
inline const char* token_table_name(const ModelConfig& config) { return config.is_bert() ? "emb.word" : "wte"; }
/// Name of the table of learned positions, where the model has one.
inline const char* position_table_name(const ModelConfig& config) { return config.is_bert() ? "emb.pos" : "wpe"; }
/// Prefix of the norm of the residual stream's end: on the last layer's result, or of a post-norm model on the
/// embeddings.
inline const char* outer_norm_name(const ModelConfig& config) { return config.post_norm() ? "emb.ln" : "ln_f"; }
/// Prefix of the last linear layer of a task's head.
inline const char* task_head_name(const ModelConfig& config) {
  return config.output == ModelOutput::spans ? "spans" : "classifier";
}

/// The parameters that a rank with `shard` holds, without memory yet, in the order in which they are laid out. Shapes
/// and names are logical. Linear weights are [out, in]. `attn.qkv.weight` is [3, heads, head size, hidden]. With fewer
/// heads of keys and values `attn.q.weight` [heads, head size, hidden] and `attn.kv.weight` [2, kv heads, head size,
/// hidden] replace it. Norms of queries and keys are `attn.q_ln.*` and `attn.k_ln.*` [head size]. `mlp.fc.weight` is
/// [f, hidden], with SwiGLU [2, f, hidden] for gate and up. They are split over the tensor ranks along heads and f, so
/// that a rank holds matching shards. The output head is `lm_head.weight` on the last stage, or where it is tied the
/// token embedding: a last stage that is not the first then holds a shared copy of `wte`. The units are the embeddings
/// on the first stage, each layer, and the final norm and head on the last stage.
///
/// A BERT's embeddings are `emb.word`, `emb.pos` and `emb.type` [2, hidden]; a post-norm model has `emb.ln.*` in place
/// of `ln_f.*`. Its heads are `mlm.dense.*`, `mlm.ln.*` and `mlm.out.bias` [vocabulary], split like the tied table, and
/// `pooler.*` and `sop.*`, [hidden, hidden] and [2, hidden]. Models without a binary head lack `emb.type`, `pooler.*`
/// and `sop.*`. A task's head replaces those of pretraining, and their tie: `pooler.*` of a BERT that classifies, then
/// `classifier.*` [outputs, hidden] or `spans.*` [2, hidden].
std::vector<parallel::Parameter> model_parameters(const ModelConfig& config, const StageShard& shard,
                                                  const parallel::VocabularyPartition& vocabulary);

}  // namespace trireme::model
