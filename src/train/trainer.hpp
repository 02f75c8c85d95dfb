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
#include "src/train/step_outcome.hpp"
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
  /// in a row; those at a dynamic loss scale that can be lowered do not count. The update may run beside the next
  /// forward: see await_update.
  ///
  /// `followed`: the next call is that of the next iteration, on the same samples, and nothing reads or changes the
  /// model before. Then a GPU may begin the next iteration: the host reads the outcome of this one after it has
  /// enqueued the next forward, so that the GPU has work meanwhile. The next iteration assumes that this one makes its
  /// update. Otherwise the device makes none from then on (StepOutcome), and the next iteration is discarded and runs
  /// again: results and messages are the same. An error of reading the next samples ends this step. With full matrices
  /// (Muon), experts, checks for spiky losses, observations of an update, recorded times, or the measurement of exposed
  /// communication the host reads the outcome at once.
  TrainRecord step(const data::SampleSource& samples, bool followed = false);
  /// Waits until the samples of a next step are read, or their reading has failed: until then `step` uses its samples,
  /// if it was `followed`. Steps that are not wait themselves.
  void end_reading() { loader_.end_reading(); }
  /// Returns whether the next iteration has begun: only `step` may be called.
  bool is_ahead() const { return next_.has_value(); }
  /// Makes later work on the compute stream wait for the update in flight, for those that read the parameters or the
  /// optimizer's state other than by a forward.
  void await_update() { model_.data_parallel().wait_for_parameters(); }
  /// Blocks the host until it is complete: state in host memory may then be overwritten.
  void finish_update() {
    await_update();
    model_.backend().compute_stream().synchronize();
  }
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
  void forget_best_score() { progress_.best_iteration = 0; }
  const BatchSchedule& batches() const { return batches_; }
  std::size_t optimizer_bytes() const { return optimizer_->bytes(); }
  std::size_t optimizer_host_bytes() const { return optimizer_->host_bytes(); }
  bool dynamic_loss_scale() const { return loss_scaler_.dynamic(); }
  const std::optional<RewindOptions>& rewinds() const { return options_.guards.rewinds; }
  const SpikeHistory& spikes() const { return spikes_; }

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
  /// Restores an earlier iteration of this run likewise, and skips the iterations since: they consume their samples, as
  /// with GuardOptions::iterations_to_skip. So the rates continue from those of the checkpoint. Collective.
  Rewind rewind(const Attributes& attributes);

 private:
  /// Samples of micro-batch after micro-batch for this data rank, from a global batch of `size` that begins at number
  /// `first_number`.
  std::vector<BatchLoader::Sample> batch_samples(std::int64_t first_index, std::int64_t first_number,
                                                 std::int64_t size) const;
  /// Likewise for an update. With variable lengths the batch's longest samples are in its first micro-batches, where
  /// its gradient is a sum over samples; each keeps its number.
  std::vector<BatchLoader::Sample> update_samples(const data::SampleSource& samples, std::int64_t first,
                                                  std::int64_t size) const;
  /// Form of an update's micro-batches.
  BatchLoader::Form form_of_update() const;
  /// Tokens and model FLOPs of an update on all ranks.
  struct Work {
    double tokens = 0;
    double flops = 0;
  };
  /// Work of the samples loaded last: of variable lengths, their tokens and the positions computed.
  Work work_of(const std::vector<model::MicroBatch>& micro_batches, std::int64_t batch_size) const;
  /// Divisors of the sums of losses, and of a mean over the micro-batches.
  struct LossParts {
    double tokens = 1;
    double samples = 1;
    std::int64_t micro_batches = 1;
  };
  /// An iteration that has begun. Its samples are loaded, and its work is enqueued, unless it is left out.
  struct Begun {
    TrainRecord record;
    bool at_minimum_scale = false;
    std::vector<BatchLoader::Sample> samples;
    BatchLoader::Form form;
    std::vector<model::MicroBatch> micro_batches;  // valid until the next iteration begins
    Work work;
    LossParts parts;
    bool updates = false;  // the update is enqueued, if the device decides
    bool is_read = false;  // the record has the outcome
  };
  /// Returns whether memory of batches of `size` samples with variable lengths is still to be taken.
  bool needs_memory(std::int64_t size) const { return model_.execution().variable_lengths && size > largest_batch_; }
  /// If needed, computes the gradients of the samples of `begun` beforehand, in micro-batches of full length, which
  /// takes the memory that was predicted. Shorter ones reuse it: memory would be fragmented if they grew. Discards the
  /// results, so that those of the run do not depend on where its processes began.
  void take_memory(const data::SampleSource& samples, Begun begun);
  /// Begins the iteration after `progress`. `loss_scaler` gives its scale. Calls `before_backward`, if given, before
  /// the first backward.
  Begun begin(const data::SampleSource& samples, const Progress& progress, const optim::LossScaler& loss_scaler,
              const std::function<void()>& before_backward = {});
  /// Returns whether the iteration after `begun` may begin before the host knows the outcome.
  bool may_run_ahead(const Begun& begun) const;
  /// Begins the iteration after `begun`, whose outcome is read meanwhile.
  void run_ahead(const data::SampleSource& samples, Begun& begun);
  /// Discards the iteration that follows `begun`, which made no update. Loads the samples of `begun` again.
  void discard_next(const data::SampleSource& samples, Begun& begun);
  /// Checks the outcome and makes the update, unless it is made or forbidden. Completes the record, except for times.
  void complete(const data::SampleSource& samples, Begun& begun);
  /// Returns whether an iteration is to be skipped on request.
  bool is_left_out(std::int64_t iteration) const { return options_.guards.iterations_to_skip.contains(iteration); }
  /// Loads the micro-batches of an iteration and begins to read those of the next one that is not left out.
  void load_batch(const data::SampleSource& samples, const Progress& progress, Begun& begun);
  /// LossParts of the batch loaded last.
  LossParts loss_parts(std::int64_t batch_size) const;
  /// Enqueues the computation of the gradients, times the loss scale, and of the outcome.
  void compute_gradients(const Begun& begun, const std::function<void()>& before_backward = {});
  /// Sets loss, gradient norm and `skipped` in the record. Waits for the outcome.
  void read_outcome(Begun& begun);
  /// Computes gradients and outcome again.
  void run_again(Begun& begun);
  /// Returns whether the device alone decides on an update. Otherwise the host reads the outcome first: for full
  /// matrices, experts, spiky losses, and what is observed before the update.
  bool device_decides() const;
  /// Takes the loads of the experts, of `micro_batches` micro-batches of all ranks.
  void note_expert_loads(std::int64_t micro_batches, TrainRecord& record);
  /// Clips the gradients and updates the parameters, unless the outcome forbids it. Sets in `record` what is observed.
  void update_parameters(TrainRecord& record);
  /// Masters of this rank's shard of parameter i.
  TensorView masters_of(std::size_t i) const { return optimizer_->state(i).front().data; }
  /// Throws NumericalError if `record` is the last of too many iterations without an update. Messages describe the
  /// gradients.
  void check_skipped(const TrainRecord& record);
  /// Number of skipped iterations in a row that count.
  int skipped_in_row() const;
  /// Returns whether check_skipped describes the gradients, of a run with this progress.
  bool describes_skip(const TrainRecord& record) const;
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
  StepOutcome outcome_;
  double factor_ = 1;  // factor of the gradients in the latest outcome read
  Tensor observed_;    // work space of observations
  std::optional<RouterBiases> router_biases_;
  std::vector<model::ExpertLoad> expert_loads_;         // loads of the latest batch
  std::map<int, std::vector<double>> balance_loads_{};  // SavedState::expert_loads
  Fp8History fp8_history_{};                            // SavedState::fp8_history
  SpikeHistory spikes_{};                               // SavedState::spikes
  std::vector<double> fp8_seen_;                        // ParallelModel::fp8_seen of the latest batch
  std::optional<StepGuard> guard_;
  std::optional<ReplicaCheck> replicas_;
  Progress progress_;
  std::int64_t largest_batch_ = 0;  // samples of the largest batch whose memory is taken
  std::function<void()> before_update_;
  std::optional<Begun> next_;  // the iteration begun ahead
  ExposedCommunication* communication_ = nullptr;
  Observations observations_;
  std::unique_ptr<Stream> update_stream_;  // null: updates run on the compute stream
};

}  // namespace trireme::train
