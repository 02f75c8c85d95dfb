#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "src/app/commands/train/train_plan.hpp"
#include "src/app/commands/train/training_samples.hpp"
#include "src/app/job/flight_recorder.hpp"
#include "src/train/state_tensors.hpp"

namespace trireme::app {

/// The model of a run, its trainer and the tensors of its checkpoints.
class TrainSession {
 public:
  /// Builds them. All arguments must live longer. Collective.
  TrainSession(Job& job, const RunConfig& config, TrainPlan& plan);

  /// Restores the starting point of the run: loads and closes the plan's checkpoint, or sets the initial weights.
  /// Collective.
  void restore();
  /// Returns whether the run has anything left to train, evaluate or save.
  bool has_work(const data::SampleSplits& data) const;
  /// Trains, evaluates and saves. `evaluate` and `measure_tasks` are those of RunHooks; `samples` may be null.
  /// Collective.
  train::RunEnd run(const data::SampleSplits& data, const std::function<void()>& evaluate = {},
                    const std::function<std::vector<train::TaskRecord>()>& measure_tasks = {},
                    const TrainingSamples* samples = nullptr);

  const train::Progress& progress() const { return trainer_.progress(); }
  train::ParallelModel& model() { return model_; }
  train::Trainer& trainer() { return trainer_; }

 private:
  /// Allocates host memory for the tensors that are loaded or saved. Collective.
  void make_state(train::OptimizerState optimizer);
  void initialise();
  /// Replaces the initial weights by those of the plan's pretrained model, except for heads that it lacks.
  void load_pretrained();

  Communicator& world() { return flight_ ? flight_->world() : static_cast<Communicator&>(*job_.world); }

  Job& job_;
  const RunConfig& config_;
  TrainPlan& plan_;
  std::unique_ptr<FlightRecorder> flight_;                      // before what communicates through it
  std::unique_ptr<train::ExposedCommunication> communication_;  // before the model, which communicates through it
  train::ParallelModel model_;
  train::Trainer trainer_;
  std::optional<train::HostState> state_;  // used to load, and then to save
};

}  // namespace trireme::app
