#pragma once

#include <string>
#include <vector>

#include "src/model/model_config.hpp"
#include "src/parallel/data/parameter_buffer.hpp"
#include "src/parallel/parameter.hpp"
#include "src/parallel/pipeline/pipeline_layout.hpp"
#include "src/parallel/tensor/low_rank_term.hpp"

namespace trireme::model {

/// Consecutive layers [first_layer, first_layer + layers) of the model.
struct LayerRange {
  int first_layer = 0;
  int layers = 0;
};

/// Shard of a model on one rank: its chunks of layers, in the order of execution, and its tensor-parallel shard of
/// each.
struct StageShard {
  std::vector<LayerRange> chunks;
  bool first_stage = true;  ///< holds the embeddings; reads tokens in chunk 0
  bool last_stage = true;   ///< holds the final norm and the output head; computes the loss in its last chunk
  int tensor_rank = 0;
  int tensor_size = 1;
  bool sequence_parallel = false;  ///< splits the residual stream along the sequence over the tensor ranks
  int expert_rank = 0;
  int expert_size = 1;  ///< ranks over which the experts of a layer are divided
  int expert_tensor_rank = 0;
  int expert_tensor_size = 1;  ///< ranks that split each expert

  /// Returns whether the ranks that hold the same experts are others than those that hold the same other parameters.
  bool divides_experts() const { return expert_size > 1 || expert_tensor_size != tensor_size; }
  /// Number of the first expert of `experts` in a layer that is here, and of experts here.
  std::int64_t first_expert(std::int64_t experts) const { return local_experts(experts) * expert_rank; }
  std::int64_t local_experts(std::int64_t experts) const { return experts / expert_size; }

  /// Returns the shard of pipeline rank `pipeline_rank` and tensor rank `tensor_rank` of `tensor_size`, which split
  /// experts, too.
  static StageShard of(const parallel::PipelineLayout& layout, int tensor_rank, int tensor_size, int pipeline_rank);
};

/// Name of the token embedding, to which an output head may be tied.
inline const char* token_table_name(const ModelConfig& config) { return config.is_bert() ? "emb.word" : "wte"; }
/// Name of the table of learned positions, if any.
inline const char* position_table_name(const ModelConfig& config) { return config.is_bert() ? "emb.pos" : "wpe"; }
/// Prefix of the norm of embeddings, if any.
inline const char* embedding_norm_name() { return "emb.ln"; }
/// Prefix of the norm outside the layers: on the last layer's result, or in a post-norm model on the embeddings.
inline const char* outer_norm_name(const ModelConfig& config) {
  return config.post_norm() ? embedding_norm_name() : "ln_f";
}
/// Prefix of the last linear layer of a task head.
inline const char* task_head_name(const ModelConfig& config) {
  return config.output == ModelOutput::spans ? "spans" : "classifier";
}

/// Parameters of one rank, in layout order, before memory is allocated. Blocks declare theirs here. Shapes are logical;
/// each call adds this tensor rank's shard, inside `of_expert` this expert tensor rank's. Linear weights are [out, in].
/// With adapters, `prefix`.lora_a.weight [rank, in] and `prefix`.lora_b.weight [out, rank] follow the weight of each
/// layer that is a target, and all parameters but these are frozen. A router's bias, which has no gradient anyway,
/// keeps its master in the accumulation type.
class ParameterList {
 public:
  using Role = parallel::ParameterRole;

  explicit ParameterList(const StageShard& shard, const LowRankAdapters& adapters = {})
      : shard_(shard), adapters_(adapters), split_rank_(shard.tensor_rank), split_size_(shard.tensor_size) {}

  /// Adds the full tensor on every tensor rank.
  parallel::Parameter& replicated(std::string name, Role role, const Shape& shape);
  /// Adds equal shards along `dimension`.
  parallel::Parameter& split(std::string name, Role role, const Shape& shape, int dimension);
  /// Adds `prefix`.weight split along `dimension`, and with `bias` `prefix`.bias, which has all its dimensions except
  /// the last, the inputs.
  void column_parallel(const std::string& prefix, bool bias, const Shape& shape, int dimension);
  /// Adds the residual matrix `prefix`.weight [outputs, inputs] split along its inputs, and with `bias` the replicated
  /// `prefix`.bias.
  void row_parallel(const std::string& prefix, bool bias, std::int64_t outputs, std::int64_t inputs);
  /// Adds `prefix`.weight [outputs, inputs] on every tensor rank, each of which multiplies its own rows.
  void replicated_linear(const std::string& prefix, std::int64_t outputs, std::int64_t inputs);
  /// Adds a replicated linear layer: `prefix`.weight [outputs, inputs] and `prefix`.bias.
  void dense(const std::string& prefix, std::int64_t outputs, std::int64_t inputs, Role role = Role::matrix);
  /// Adds the parameters that `declare` adds to gradient group 1, as belonging to an expert of this rank, if experts
  /// are divided over ranks.
  template <class Function>
  void of_expert(const Function& declare) {
    const std::size_t first = list_.size();
    split_rank_ = shard_.expert_tensor_rank;
    split_size_ = shard_.expert_tensor_size;
    declare();
    split_rank_ = shard_.tensor_rank;
    split_size_ = shard_.tensor_size;
    for (std::size_t i = first; i < list_.size(); ++i) list_[i].gradient_group = shard_.divides_experts() ? 1 : 0;
  }
  /// Ends a unit of parameters that are used together: see Parameter::unit.
  void end_unit();

  const StageShard& shard() const { return shard_; }
  std::vector<parallel::Parameter> take();

 private:
  /// Adds an adapter of the weight `prefix`, which is split along `dimension`, and one of its matrices with it. The
  /// other is on every tensor rank, each of which has a term of its gradient (LowRankTerm). A dimension of -1: the
  /// weight is on every tensor rank, and so are both.
  void adapt(const std::string& prefix, const Shape& shape, int dimension);

  const StageShard& shard_;
  LowRankAdapters adapters_;
  int split_rank_, split_size_;  // ranks over which `split` divides
  std::vector<parallel::Parameter> list_;
  std::size_t first_of_unit_ = 0;
  int unit_ = 0;
};

/// Adds the adapter of the weight `prefix` to its linear layer, if it is a target.
template <class Linear>
void adapt(Linear& linear, const parallel::ParameterBuffer& parameters, const std::string& prefix,
           const ModelConfig& config) {
  if (!config.adapters.adapt(prefix)) return;
  linear.adapt(parameters.at(prefix + ".lora_a.weight"), parameters.at(prefix + ".lora_b.weight"),
               config.adapters.scale());
}

}  // namespace trireme::model
