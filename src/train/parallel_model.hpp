#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "src/data/dataset/sample_source.hpp"
#include "src/model/stage/recorded_stage.hpp"
#include "src/model/stage/transformer_stage.hpp"
#include "src/parallel/data/data_parallel.hpp"
#include "src/parallel/grid/grid_communicators.hpp"
#include "src/parallel/pipeline/executor.hpp"
#include "src/train/train_options.hpp"

namespace trireme::train {

/// Growth of the memory of activations and work. Their sizes change with the tokens of experts, and with the prompts of
/// a model that is not trained; otherwise the first ones are the largest, and graphs keep their addresses.
Growth memory_growth(const model::ModelConfig& config, const ExecutionConfig& execution);

/// Optional fields of samples that a model reads; those of running text with these options.
data::SampleFields sample_fields(const model::ModelConfig& config, const DocumentOptions& documents = {});
/// The same for training with `execution`. BERT's masked tokens alone are predicted, in as many rows as the chunks of
/// `tensor_size` ranks can divide.
data::SampleFields training_fields(const model::ModelConfig& config, const ExecutionConfig& execution, int tensor_size,
                                   const DocumentOptions& documents = {});

/// The shard of a rank of the grid, without sequence parallelism.
model::StageShard stage_shard(const parallel::PipelineLayout& pipeline, const parallel::ProcessGrid& grid, int rank);

/// One rank's shard of a model and the objects that run it on its grid: parameters, stage, schedule. Collective where
/// it communicates: every rank of the grid makes the same calls.
class ParallelModel {
 public:
  /// `world` (host memory) is the grid's ranks in the grid's order. All except the options must live longer.
  ParallelModel(Backend& backend, Communicator& world, const parallel::ProcessGrid& grid,
                parallel::GridCommunicators& communicators, const model::ModelConfig& config,
                const ExecutionConfig& execution);

  const model::ModelConfig& config() const { return config_; }
  const ExecutionConfig& execution() const { return execution_; }
  Backend& backend() { return backend_; }
  Communicator& world() const { return world_; }
  const parallel::ProcessGrid& grid() const { return grid_; }
  const parallel::GridCommunicators& communicators() const { return communicators_; }
  parallel::ParameterBuffer& parameters() { return parameters_; }
  parallel::DataParallel& data_parallel() { return data_parallel_; }
  /// This rank's groups by Parameter::gradient_group.
  const std::vector<parallel::GradientGroup>& gradient_groups() const { return gradient_groups_; }
  const parallel::GradientGroup& group_of(const parallel::Parameter& parameter) const {
    return gradient_groups_[static_cast<std::size_t>(parameter.gradient_group)];
  }
  /// The ranks that hold the same parameters of gradient group 0.
  Communicator& gradient_group() const { return *communicators_.gradient; }
  model::TransformerStage& stage() { return stage_; }
  /// The stage for generation: this one, or another over the same parameters, without sequence parallelism and FP8.
  /// Waits for parameters in flight.
  model::TransformerStage& decoding_model();
  /// LayerStack::set_router_biases of all stages.
  void set_router_biases(std::span<const double> biases);
  /// The part of the model on this rank.
  const model::StageShard& shard() const { return shard_; }
  const parallel::VocabularyPartition& vocabulary() const { return vocabulary_; }

  /// Micro-batches that are shorter than the execution's sequence length have a multiple of this many positions, so
  /// that the context and the tensor ranks can divide them (BatchLoader::load). 0 if experts are divided over ranks:
  /// none is shorter, because these ranks exchange tokens of micro-batches of equal length.
  std::int64_t length_multiple() const;

  /// The shard that this context rank holds of sequences of the execution's length.
  const parallel::SequenceShard& sequence_shard() const { return sequence_shard_; }
  /// Split of the layers over the stages.
  const parallel::PipelineLayout& pipeline_layout() const { return pipeline_layout_; }

  /// Runs forward and, if `mode` has it, backward on this data rank's micro-batches of one update: clears the gradients
  /// and adds them up; `reduce_gradients` completes them. Until the first backward, before which it calls
  /// `before_backward`, the gradients are those of the update before. Without `as_graphs` nothing is recorded or
  /// replayed: the same bits, and probes see every layer.
  void run(std::vector<model::MicroBatch> micro_batches, const model::StageMode& mode, bool as_graphs = true,
           const std::function<void()>& before_backward = {});
  /// Completes the sums of all gradients over the ranks that hold the same parameters. Then it sums partial gradients
  /// over the tensor group, and that of a tied embedding over first and last stage.
  void reduce_gradients();
  /// mine [LossSums::kinds] fp64 = sums of weighted losses of this rank's samples since the last call: on ranks of the
  /// last stage, others have none. all = those of all samples, on every rank. Stream-ordered. Collective.
  void take_loss_sums(TensorView mine, TensorView all);
  /// Returns those of all samples. Waits for the device. Collective.
  model::LossSums take_global_loss_sums();
  /// Loads of the experts of all layers since the last call, summed over the micro-batches of all ranks, on every rank;
  /// empty without experts.
  std::vector<model::ExpertLoad> take_expert_loads();
  /// The largest magnitudes that products in FP8 with delayed scales saw in the last update on all ranks, on every rank
  /// (Fp8Scaling::read_seen), infinite if a tensor was not finite; otherwise empty.
  std::vector<double> fp8_seen();
  /// Fp8Scaling::set_amax; magnitudes that `amax` lacks are 0.
  void set_fp8_amax(std::vector<double> amax);
  void forget_fp8_amax() { fp8_->forget_amax(); }
  /// Returns whether products are rounded to FP8, with scales known, or never rounded: later updates run the same
  /// kernels.
  bool knows_fp8_scales() const { return fp8_ == nullptr || fp8_->rounds(); }
  /// Class scores of this data rank's samples evaluated since the last call (OutputHead::take_sample_scores), on the
  /// one rank of each replica that has them first; empty on others.
  std::vector<double> take_sample_scores();

  /// Bytes taken so far for data that lives at most as long as a micro-batch.
  struct RunningMemory {
    std::size_t activations = 0;  ///< kept for backward, or recomputed there
    std::size_t work = 0;         ///< work space of running layers, and weights in FP8
    std::size_t messages = 0;     ///< between stages
    std::size_t host = 0;         ///< host memory of activations kept there
  };
  RunningMemory running_memory() const {
    return {stage_.activations().reserved_bytes(), workspace_.reserved_bytes() + (fp8_ ? fp8_->copied_bytes() : 0),
            executor_.buffer_bytes(), stage_.activations().host_bytes()};
  }

  /// Sets the recorder of timed work; null for none.
  void set_trace(TraceRecorder* trace);
  TraceRecorder* trace() const { return trace_; }

 private:
  /// The stage that the executor runs.
  model::ModelStage& running_stage() {
    if (recorded_) return *recorded_;
    return stage_;
  }

  Backend& backend_;
  Communicator& world_;
  parallel::ProcessGrid grid_;
  parallel::GridCommunicators& communicators_;
  model::ModelConfig config_;
  ExecutionConfig execution_;
  parallel::SequenceShard sequence_shard_;
  parallel::PipelineLayout pipeline_layout_;
  parallel::ScheduleKind schedule_kind_;
  parallel::VocabularyPartition vocabulary_;
  model::StageShard shard_;
  Arena workspace_;
  std::vector<parallel::GradientGroup> gradient_groups_;
  parallel::ParameterBuffer parameters_;
  parallel::DataParallel data_parallel_;
  std::unique_ptr<parallel::Fp8Scaling> fp8_;  // null: no products are rounded
  model::TransformerStage stage_;
  std::unique_ptr<model::TransformerStage> unsplit_;  // see decoding_model; null before its first use
  std::vector<double> router_biases_;                 // the latest ones
  std::unique_ptr<model::RecordedStage> recorded_;    // null unless steps run as graphs
  parallel::PipelineExecutor executor_;
  TraceRecorder* trace_ = nullptr;
  std::map<std::pair<bool, int>, parallel::Schedule> schedules_;  // by backward, micro-batches
};

}  // namespace trireme::train
