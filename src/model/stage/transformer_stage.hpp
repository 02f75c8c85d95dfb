#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "src/model/heads/output_head.hpp"
#include "src/model/stage/ahead_prediction.hpp"
#include "src/model/stage/input_embedding.hpp"
#include "src/model/stage/layer_stack.hpp"
#include "src/model/stage/model_stage.hpp"
#include "src/parallel/context/sequence_shard.hpp"

namespace trireme::model {

/// One rank's shard of a model: the embedding on the first stage, layers, and the head on the last. Calls the hooks for
/// every parameter unit that it uses.
class TransformerStage final : public ModelStage {
 public:
  /// The head computes token losses in `loss_chunks` chunks (TokenPrediction).
  TransformerStage(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                   const ModelConfig& config, const StageShard& shard, const parallel::VocabularyPartition& vocabulary,
                   const parallel::SequenceShard& sequence, std::int64_t micro_batch_size, DType dtype,
                   const Recomputation& recomputation, std::int64_t loss_chunks, parallel::ParameterHooks& hooks);
  TransformerStage(const TransformerStage&) = delete;  // its parts refer to one another

  void begin(std::vector<MicroBatch> micro_batches, const StageMode& mode) override;
  ActivationStore& activations() override { return activations_; }
  const ActivationStore& activations() const { return activations_; }
  /// sums [LossSums::kinds] fp64 = the sums of weighted losses since the last call, on the last stage; 0 elsewhere.
  /// Stream-ordered.
  void take_loss_sums(TensorView sums);
  /// The numbers of such sums, on any stage.
  LossSums loss_sums_of(std::span<const double> sums) const;
  /// Both. Waits for the device.
  LossSums take_loss_sums();
  /// OutputHead::take_sample_scores on the last stage; empty elsewhere.
  std::vector<double> take_sample_scores();

  /// LayerStack's functions of these names, for all layers of this rank.
  std::vector<ExpertLoad> take_expert_loads() const;
  void set_router_biases(std::span<const double> biases) const;
  void set_balance_loads(const std::map<int, std::vector<double>>& loads) const;

  /// Sets the observer of the following training runs; null for none.
  void set_probe(StageProbe* probe) { probe_ = probe; }

  DType boundary_dtype() const override { return shape_.dtype; }
  Shape boundary_shape(int micro_batch) const override;
  bool is_first(int chunk) const override { return shard_.first_stage && chunk == 0; }
  bool is_last(int chunk) const override {
    return shard_.last_stage && chunk + 1 == static_cast<int>(shard_.chunks.size());
  }
  bool may_need_idle_gpu() const override { return has_varying_rows_; }
  bool reads_input_in_backward(int chunk) const override {
    return layers_.reads_input_in_backward(chunk, mode_.backward);
  }
  void forward(int chunk, int micro_batch, ConstTensorView input, TensorView output) override;
  void backward_input(int chunk, int micro_batch, ConstTensorView output_gradient, TensorView input_gradient) override;
  void backward_weight(int chunk, int micro_batch) override;
  void backward(int chunk, int micro_batch, ConstTensorView output_gradient, TensorView input_gradient) override;

  const parallel::TensorContext& context() const { return context_; }
  /// Extents of a micro-batch of the longest sequence.
  const LayerShape& shape() const { return shape_; }
  /// The parts of the model on this rank.
  const std::optional<InputEmbedding>& embedding() const { return embedding_; }
  const LayerStack& layers() const { return layers_; }
  const OutputHead* head() const { return head_.get(); }

 private:
  /// State that one micro-batch of one chunk keeps between forward and backward.
  struct Saved {
    InputEmbedding::Saved embedding;
    LayerStack::Saved layers;
    std::unique_ptr<OutputHead::Saved> head;
    AheadPrediction::Saved ahead;
  };

  Saved& saved(int chunk, int micro_batch) { return saved_.at({chunk, micro_batch}); }
  /// Frees a micro-batch's state and activations.
  void release(int chunk, int micro_batch);
  const MicroBatch& batch(int micro_batch) const { return micro_batches_[static_cast<std::size_t>(micro_batch)]; }
  bool is_last_micro_batch(int micro_batch) const { return micro_batch + 1 == static_cast<int>(micro_batches_.size()); }
  /// Extents and fields of a micro-batch, with the sequence length of its tokens. ShapeError if its rows do not split
  /// evenly over the tensor ranks.
  LayerShape shape_of(int micro_batch) const;
  DropoutPlan dropout(int micro_batch) const;
  LayerStack::Pass pass(int chunk, int micro_batch, const LayerShape& shape, ResidualPair& streams);
  /// Runs either kind of backward: layer by layer, from last to first.
  void run_backward(int chunk, int micro_batch, ConstTensorView output_gradient, TensorView input_gradient,
                    parallel::WeightGradient weights);
  // Parameter units, as model_parameters numbers them.
  static constexpr int embedding_unit = 0;
  int first_layer_unit() const { return shard_.first_stage ? 1 : 0; }
  int head_unit() const { return first_layer_unit() + layers_.size(); }

  parallel::TensorContext context_;
  parallel::ParameterHooks& hooks_;
  StageShard shard_;
  bool has_table_in_head_;
  bool has_varying_rows_;             // each micro-batch has other numbers of tokens for the experts
  parallel::SequenceShard sequence_;  // shard of the longest micro-batches
  LayerShape shape_;                  // their extents
  ActivationStore activations_;
  LayerStack layers_;
  std::optional<InputEmbedding> embedding_;
  std::unique_ptr<OutputHead> head_;
  std::optional<AheadPrediction> ahead_;
  StageProbe* probe_ = nullptr;
  double ahead_depths_;  // number of the model, at least 1
  Tensor loss_sums_;     // work space

  std::vector<MicroBatch> micro_batches_;
  StageMode mode_;
  std::map<std::pair<int, int>, Saved> saved_;  // by chunk and micro-batch
};

}  // namespace trireme::model
