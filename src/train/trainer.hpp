#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "src/checkpoint/state.hpp"
#include "src/data/dataset/split.hpp"
#include "src/optim/grad_norm.hpp"
#include "src/optim/loss_scaler.hpp"
#include "src/optim/optimizer.hpp"
#include "src/train/batch_loader.hpp"
#include "src/train/exposed_communication.hpp"
#include "src/train/guards/replica_check.hpp"
#include "src/train/guards/step_guard.hpp"
#include "src/train/parallel_model.hpp"
#include "src/train/progress.hpp"
#include "src/train/router_biases.hpp"
#include "src/train/train_record.hpp"

namespace trireme::train {

/// Trains a model iteration by iteration. Collective over the full grid.
class Trainer {
 public:
  Trainer(ParallelModel& model, const TrainOptions& options);
  ~Trainer();
  Trainer& operator=(Trainer&&) = delete;

  /// One iteration on the next global batch of `samples`: gradients, clipping, update. If a gradient or the loss is not
  /// finite, StepGuard::check runs the step again and throws. With a dynamic loss scale, or without
  /// GuardOptions::check_for_nan, the update is skipped instead. Throws NumericalError after too many skipped updates
  /// in a row; those at a dynamic loss scale that can be lowered do not count. Unless steps run as graphs, the update
  /// may run beside the next forward: see await_update.
  TrainRecord step(const data::SampleSource& samples);
  /// Makes later work on the compute stream wait for the update in flight, for those that read the parameters or the
  /// optimizer's state other than by a forward.
  void await_update() { model_.data_parallel().wait_for_parameters(); }
  /// Compares the ranks with the same parameters (ReplicaCheck). Collective.
  void check_replicas();
  /// Mean loss over all labels of the samples [begin, begin + iterations x batches().max_size()) of `samples`, without
  /// dropout. Calls `stop`, if given, collectively after every batch except the last; if it returns true there is no
  /// record. Notes the outcome for `split` in progress(): evaluation_left or tested.
  std::optional<EvaluationRecord> evaluate(const data::SampleSource& samples, std::int64_t begin,
                                           std::int64_t iterations, const std::function<bool()>& stop = {},
                                           data::Split split = data::Split::valid);

  const Progress& progress() const { return progress_; }
  bool note_score(double score) { return progress_.note_score(score); }
  /// Replaces the best score, measured again.
  void replace_best_score(double score) { progress_.best_score = score; }
  const BatchSchedule& batches() const { return batches_; }
  std::size_t optimizer_bytes() const { return optimizer_->bytes(); }
  std::size_t optimizer_host_bytes() const { return optimizer_->host_bytes(); }
  bool dynamic_loss_scale() const { return loss_scaler_.dynamic(); }

  /// Sets an action to run before every update of the parameters and the optimizer's state, for their readers.
  void before_update(std::function<void()> action) { before_update_ = std::move(action); }

  /// Measures exposed communication from now on; `communication` made the model's communicators.
  void measure(ExposedCommunication& communication) { communication_ = &communication; }

  /// Measurements of every update that take a pass over the shard.
  struct Observations {
    bool params_norm = false;
    bool num_zeros = false;
  };
  void observe(const Observations& observations) { observations_ = observations; }

  /// Sets the masters to the parameters, after their initialisation.
  void start();

  /// This rank's tensors of a checkpoint, those of its shard: master weights ("model/NAME") and the optimizer's moments
  /// ("adamw_m/NAME" ...), in the backend's memory or in host memory (for files: HostState). Valid as long as the
  /// trainer.
  std::vector<checkpoint::StateTensor> state_tensors(OptimizerState optimizer = OptimizerState::kept);
  /// The run's state as attributes of a checkpoint; and back, after the tensors have been loaded. With
  /// OptimizerState::left_out only the progress is restored: the optimizer and the loss scale start afresh.
  Attributes state_attributes() const;
  void restore(const Attributes& attributes, OptimizerState optimizer = OptimizerState::kept);

 private:
  /// Samples of micro-batch after micro-batch for this data rank, from a global batch of `size` that begins at number
  /// `first_number`.
  std::vector<BatchLoader::Sample> batch_samples(std::int64_t first_index, std::int64_t first_number,
                                                 std::int64_t size) const;
  /// Likewise for an update. With variable lengths the batch's longest samples are in its first micro-batches, where
  /// its gradient is a sum over samples; each keeps its number.
  std::vector<BatchLoader::Sample> update_samples(const data::SampleSource& samples, std::int64_t first,
                                                  std::int64_t size) const;
  /// Form of an update's micro-batches. The first update of a size is not shortened, so that it takes the memory of the
  /// longest micro-batches, as predicted.
  BatchLoader::Form form_of_update(std::int64_t size) const;
  /// Tokens and model FLOPs of an update on all ranks.
  struct Work {
    double tokens = 0;
    double flops = 0;
  };
  /// Work of the samples loaded last: of variable lengths, their tokens and the positions computed.
  Work work_of(const std::vector<model::MicroBatch>& micro_batches, std::int64_t batch_size) const;
  /// Returns whether an iteration is to be skipped on request.
  bool is_left_out(std::int64_t iteration) const { return options_.guards.iterations_to_skip.contains(iteration); }
  /// Returns the micro-batches of the next global batch and begins to read those of the next one that is not left out.
  std::vector<model::MicroBatch> load_batch(const data::SampleSource& samples, std::int64_t batch_size);
  /// Computes the gradients of a batch, times `record.loss_scale`. Sets loss, gradient norm and `skipped` in `record`.
  void compute_gradients(const std::vector<model::MicroBatch>& micro_batches, std::int64_t batch_size,
                         TrainRecord& record);
  /// Takes the loads of the experts, of `micro_batches` micro-batches of all ranks.
  void note_expert_loads(std::int64_t micro_batches, TrainRecord& record);
  /// Clips the gradients and updates the parameters. Sets in `record` what is observed.
  void update_parameters(TrainRecord& record);
  /// Masters of this rank's shard of parameter i.
  TensorView masters_of(std::size_t i) const { return optimizer_->state(i).front().data; }
  /// Throws NumericalError if `record` is the last of too many iterations without an update.
  void check_skipped(const TrainRecord& record);
  /// Labels of tokens, and of entire samples.
  struct LabelCounts {
    std::int64_t tokens = 0;
    std::int64_t samples = 0;
  };
  /// Labels of the micro-batches loaded last.
  LabelCounts loaded_labels() const;
  /// Sums over the data ranks; `mine` is the same on all ranks of a replica.
  LabelCounts sum_over_data_ranks(const LabelCounts& mine) const;
  /// Number of samples of the last evaluation batch whose likeliest class is their label, on the rank of each replica
  /// that has scores; 0 on others.
  std::int64_t count_correct();

  ParallelModel& model_;
  TrainOptions options_;
  BatchSchedule batches_;
  BatchLoader loader_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::LossScaler loss_scaler_;
  Tensor norm_sum_;
  std::optional<RouterBiases> router_biases_;
  std::vector<model::ExpertLoad> expert_loads_;         // loads of the latest batch
  std::map<int, std::vector<double>> balance_loads_{};  // SavedState::expert_loads
  Fp8History fp8_history_{};                            // SavedState::fp8_history
  std::vector<double> fp8_seen_;                        // ParallelModel::fp8_seen of the latest batch
  std::optional<StepGuard> guard_;
  std::optional<ReplicaCheck> replicas_;
  Progress progress_;
  std::int64_t largest_batch_ = 0;  // samples of the largest update so far
  std::function<void()> before_update_;
  ExposedCommunication* communication_ = nullptr;
  Observations observations_;
  std::unique_ptr<Stream> update_stream_;  // null: updates run on the compute stream
};

}  // namespace trireme::train
