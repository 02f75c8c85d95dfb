#pragma once

#include <functional>

#include "src/data/dataset/gpt_data.hpp"
#include "src/train/checkpoint_writer.hpp"
#include "src/train/trainer.hpp"

namespace trireme::train {

/// Intervals at which a run reports, evaluates, saves and stops. Zero means never.
struct RunSchedule {
  std::int64_t log_interval = 100;
  std::int64_t eval_interval = 1000;
  std::int64_t eval_iterations = 100;
  std::int64_t sample_interval = 1000;
  std::int64_t tasks_interval = 1000;
  std::int64_t save_interval = 0;
  std::int64_t local_interval = 0;  ///< interval of local checkpoints (CheckpointWriter)
  std::int64_t replica_check_interval = 0;
  std::int64_t exit_interval = 0;
  double exit_duration_minutes = 0;
  double peak_tflops = 0;      ///< peak of a rank's device, for the MFU in the log; 0: no MFU
  bool skip_training = false;  ///< only evaluates the validation and test splits
};

/// Callbacks of the loop; collective unless stated otherwise.
struct RunHooks {
  /// Saves the run's checkpoints; null if it saves none.
  CheckpointWriter* checkpoints = nullptr;
  /// Says how to continue a run that stopped early.
  std::string continuation;
  /// Returns whether this rank was asked to stop, by a signal or a file; one rank suffices. Not collective.
  std::function<bool()> stop_requested;
  /// Receives records; null on ranks that keep none.
  MetricsSink* metrics = nullptr;
  /// Replaces the evaluation of the loss on the validation split; may be empty.
  std::function<void()> evaluate;
  /// Continues prompts by the model in training, at the intervals of the schedule and at the end; may be empty.
  std::function<void()> sample;
  /// Measures tasks after each `tasks_interval` iterations and at the end; may be empty.
  std::function<std::vector<TaskRecord>()> measure_tasks;
  /// Called after each iteration on every rank; may be empty. Not collective.
  std::function<void(const TrainRecord&)> after_step;
  /// Called after each line of the log on every rank; may be empty.
  std::function<void(std::int64_t iteration)> after_log;
  /// Receives the time of each evaluation, set of samples or measurement of tasks; may be empty. Not collective.
  std::function<void(double elapsed_ms)> after_evaluation;
  /// Reports progress after each iteration; may be empty.
  std::function<void(const TrainRecord&, std::int64_t total)> progress;
};

enum class RunEnd { complete, stopped_early };

/// Returns whether training is complete but the test split is not yet evaluated.
bool test_is_left(const Progress& progress, std::int64_t train_iterations, const data::SampleSplits& data,
                  const RunSchedule& schedule);

/// Trains until the last iteration, then evaluates the test split. After every iteration, and every batch of an
/// evaluation, the ranks agree whether one of them was signalled or time is up; then they save and stop together. An
/// iteration that has begun by then is completed (Trainer::step). The
/// run that resumes this one repeats an interrupted evaluation. A planned stop of a run that saves nothing is
/// `complete`, since nothing can be resumed. Without training, validation reads the samples of the next validation in
/// training.
RunEnd run(Trainer& trainer, Communicator& world, std::int64_t train_iterations, const data::SampleSplits& data,
           const RunSchedule& schedule, const RunHooks& hooks);

}  // namespace trireme::train
