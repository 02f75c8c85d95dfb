#pragma once

#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "src/model/gpt_parameters.hpp"
#include "src/model/layers/recomputation.hpp"
#include "src/model/layers/transformer_layer.hpp"
#include "src/model/stage/micro_batch.hpp"
#include "src/model/stage/micro_batch_graphs.hpp"
#include "src/parallel/context/sequence_shard.hpp"
#include "src/parallel/parameter_hooks.hpp"
#include "src/parallel/pipeline/stage.hpp"

namespace trireme::model {

/// One rank's part of a GPT of pre-norm layers: embeddings on the first stage, layers, final norm, head and loss on the
/// last. Implements what the pipeline executor drives; calls the hooks for every unit of parameters
/// it uses.
class GptStage final : public parallel::Stage {
 public:
  GptStage(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters, const GptConfig& config,
           const StageShard& shard, const parallel::VocabularyPartition& vocabulary,
           const parallel::SequenceShard& sequence, std::int64_t micro_batch_size, DType dtype,
           const Recomputation& recomputation, parallel::ParameterHooks& hooks);
  ~GptStage() override;

  /// Which micro-batches of an update do not run as graphs: those in which hooks wait or communicate.
  struct Unrecorded {
    bool first = false;
    bool last = false;
  };
  /// From now on the steps of training run as graphs (MicroBatchGraphs). ConfigError where the backend has none.
  void use_graphs(const Unrecorded& unrecorded);
  /// Sets what the next run of the executor works on. The tensors must live until it is done.
  void begin(std::vector<MicroBatch> micro_batches, const StageMode& mode);
  /// The sum of weighted token losses since the last call, on the last stage's ranks; 0 on others. Waits for the
  /// device.
  double take_loss_sum();
  /// Bytes of activations now, and at the most so far, over all micro-batches in flight: what is kept for backward and
  /// what is made again there.
  std::size_t activation_bytes() const;
  std::size_t peak_activation_bytes() const { return peak_activation_bytes_; }
  /// Bytes taken from the backend for them.
  std::size_t reserved_activation_bytes() const;

  DType boundary_dtype() const override { return shape_.dtype; }
  Shape boundary_shape() const override { return {shape_.s_local, shape_.b, shape_.h}; }
  bool is_first(int chunk) const override { return shard_.first_stage && chunk == 0; }
  bool is_last(int chunk) const override {
    return shard_.last_stage && chunk + 1 == static_cast<int>(shard_.chunks.size());
  }
  bool reads_input_in_backward(int chunk) const override {
    const std::vector<LayerSpan> list = groups(chunk);
    return !runs_graphs() && (list.empty() || !keeps_part_of_input(list.front()));
  }
  void forward(int chunk, int micro_batch, ConstTensorView input, TensorView output) override;
  void backward_input(int chunk, int micro_batch, ConstTensorView output_gradient, TensorView input_gradient) override;
  void backward_weight(int chunk, int micro_batch) override;
  void backward(int chunk, int micro_batch, ConstTensorView output_gradient, TensorView input_gradient) override;

  /// Generation: runs `chunk` on the newest `positions` positions of one sequence, from `first_position` on. ids
  /// [positions, 1] on the first stage, else `input` [positions, 1, h]; `output` likewise, or on the last stage this
  /// rank's part of the newest position's logits, [1, vocabulary rows] in the training type. `caches` holds one cache a
  /// layer of this rank.
  void forward_cached(int chunk, std::int64_t positions, std::int64_t first_position, ConstTensorView ids,
                      ConstTensorView input, std::vector<KeyValueCache>& caches, TensorView output);
  /// Empty caches for `capacity` positions of one sequence, allocated from `arena`.
  std::vector<KeyValueCache> make_caches(std::int64_t capacity, Arena& arena) const;

 private:
  struct Head {
    TensorView normed;
    NormStatistics statistics;
    TensorView logits;
    parallel::VocabularyParallelCrossEntropy::Saved loss;
    static Head allocate(const LayerShape& shape, std::int64_t vocabulary_rows, Arena& arena);
  };
  struct SavedSpan;
  /// State that one micro-batch of one chunk keeps between forward and backward.
  struct Saved;

  Saved& saved(int chunk, int micro_batch);
  /// A micro-batch on its way, with the arena of the lowest number that is free: which, depends on the schedule alone.
  Saved& open(int chunk, int micro_batch);
  void release(Saved& saved);
  /// Enqueues a step of the micro-batch, or the graph recorded of it.
  void run(parallel::StepKind kind, int chunk, int micro_batch, ConstTensorView received, TensorView sent,
           const MicroBatchGraphs::Enqueue& enqueue);
  bool runs_graphs() const { return graphs_ && mode_.backward; }
  const MicroBatch& batch(int micro_batch) const {
    return runs_graphs() ? graphs_->micro_batch() : micro_batches_[static_cast<std::size_t>(micro_batch)];
  }
  void run_forward(int chunk, int micro_batch, ConstTensorView input, TensorView output);
  void note_activation_bytes();
  std::vector<LayerSpan> groups(int chunk) const;
  /// Runs consecutive layers from x to y; what backward needs comes from `arena`. With an empty y the last layer makes
  /// only that.
  void run_and_keep(int first_layer, int layers, const DropoutPlan& dropout, ConstTensorView x, TensorView y,
                    Arena& arena, SavedSpan& group);
  /// The same, keeping nothing; `arena` is as before afterwards.
  void run_and_forget(int first_layer, int layers, const DropoutPlan& dropout, ConstTensorView x, TensorView y,
                      Arena& arena);
  /// Returns whether this rank keeps only its part of the group's input.
  bool keeps_part_of_input(const LayerSpan& group) const {
    return mode_.backward && group.recomputed && recomputation_.distribute;
  }
  /// A copy of this tensor rank's equal part of a tensor that is the same on all of them.
  ConstTensorView own_part(ConstTensorView stream, Arena& arena);
  /// A group's input, gathered where only parts of it were kept.
  ConstTensorView whole_input(const LayerSpan& group, ConstTensorView kept, Arena& arena);
  DropoutPlan dropout(int micro_batch) const;
  void embed(int micro_batch, TensorView x);
  void forward_head(int micro_batch, Head& head, ConstTensorView x);
  void backward_head(int micro_batch, Head& head, ConstTensorView x, TensorView dx);
  void backward_embedding(int micro_batch, ConstTensorView dx);
  int first_layer_index(int chunk) const;
  /// Positions of the rows of this rank's residual stream.
  Positions residual_positions() const {
    return context_.sequence_parallel ? shape_.positions.from(shard_.tensor_rank * shape_.s_local) : shape_.positions;
  }
  // Units of parameters, as gpt_parameters numbers them.
  static constexpr int embedding_unit = 0;
  int layer_unit(int index) const { return (shard_.first_stage ? 1 : 0) + index; }
  int head_unit() const { return layer_unit(static_cast<int>(layers_.size())); }
  /// Both kinds of backward: layer by layer, from last to first.
  void run_backward(int chunk, int micro_batch, ConstTensorView output_gradient, TensorView input_gradient,
                    parallel::WeightGradient weights);
  void run_backward_weight(int chunk, int micro_batch);

  parallel::TensorContext context_;
  parallel::ParameterHooks& hooks_;
  GptConfig config_;
  StageShard shard_;
  LayerShape shape_;
  std::int64_t vocabulary_rows_;
  Recomputation recomputation_;
  std::vector<TransformerLayer> layers_;  // of all chunks, one after another
  std::optional<parallel::VocabularyParallelEmbedding> embedding_;
  TensorView positions_;  // empty where positions are not learned
  TensorView positions_gradient_;
  std::optional<NormParameters> final_norm_;
  std::optional<parallel::ColumnParallelLinear> head_;
  parallel::VocabularyParallelCrossEntropy cross_entropy_;

  std::vector<MicroBatch> micro_batches_;
  StageMode mode_;
  std::vector<std::unique_ptr<Saved>> saved_;  // [chunk][micro-batch]
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::set<std::size_t> free_arenas_;  // numbers
  std::optional<MicroBatchGraphs> graphs_;
  Unrecorded unrecorded_;
  Tensor loss_sum_;  // [1] fp64
  std::size_t peak_activation_bytes_ = 0;
};

}  // namespace trireme::model
