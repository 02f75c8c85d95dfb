#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/app/options/options.hpp"
#include "src/app/options/problems.hpp"
#include "src/app/run_config/batch_options.hpp"
#include "src/app/run_config/run_attributes.hpp"
#include "src/checkpoint/load.hpp"
#include "src/train/checkpoint_writer.hpp"

namespace trireme::app {

/// Choice of the step to open in a folder of checkpoints.
struct OpenOptions {
  std::optional<std::int64_t> step;  ///< iteration; the newest, unless given
  bool optional = false;             ///< a folder without checkpoints gives an empty result, not an error
  bool warns = false;                ///< and logs a warning
  checkpoint::Verification verification = checkpoint::Verification::at_opening;
  bool logs = true;             ///< logs the step that is loaded
  std::int64_t kept_bytes = 0;  ///< memory of this rank for files between their verification and the load
};

/// Options of the checkpoints of a run. Only pretraining can start a new run from a checkpoint's weights: a task has
/// its pretrained model.
struct CheckpointOptions {
  std::string save;
  std::string load;
  std::optional<std::int64_t> step;  ///< iteration of the checkpoint in `load`; the newest, unless given
  bool load_or_init = false;
  bool exit_on_missing = false;
  bool finetune = false;
  bool upcycling = false;  ///< a new run from a dense model's weights
  std::int64_t upcycling_granularity = 1;
  bool use_model = false;  ///< takes the model's options from the checkpoint
  bool no_load_optimizer = false;
  bool no_save_optimizer = false;
  bool allow_new_data = false;
  bool override_schedule = false;        ///< learning rate and weight decay of the command line
  bool use_checkpoint_schedule = false;  ///< those of the checkpoint
  std::int64_t save_interval = 0;
  std::optional<int> keep_last;
  std::int64_t retain_interval = 0;
  bool async_save = false;
  std::string local_folder;         ///< folder of each node for local checkpoints
  std::int64_t local_interval = 0;  ///< 0: none
  train::OnSaveError on_save_error = train::OnSaveError::stop;

  void declare(Options& options, RunKind kind = RunKind::pretraining);
  void check(const Options& options, Problems& problems) const;
  /// Returns whether the run goes on in the folder of `load`: `save` is the same, however it is spelt.
  bool goes_on_in_place() const;
  /// Likewise, or from one step's folder in `save`: earlier checkpoints there are of this run.
  bool continues_in_save() const;
  /// Returns whether `save` is this folder, however it is spelt.
  bool saves_to(const std::string& folder) const;
  /// Says how to continue a run that was stopped.
  std::string continuation() const;
  /// Returns whether `load` only has the weights from which a new run starts.
  bool starts_anew() const { return finetune || upcycling; }
  /// Returns whether threads write checkpoints from a copy of the state in host memory.
  bool writes_behind() const { return async_save || local_interval > 0; }
  /// Use of the optimizer's state when resuming, and when saving.
  train::OptimizerState loaded_optimizer() const { return state_of(no_load_optimizer); }
  train::OptimizerState saved_optimizer() const { return state_of(no_save_optimizer); }
  /// Checkpoint to resume from. If it is missing, a run starts from scratch on request, or if it saves to the same
  /// folder, as in Megatron-LM.
  OpenOptions source(std::int64_t kept_bytes = 0) const {
    return {.step = step,
            .optional = load_or_init || (goes_on_in_place() && !exit_on_missing && !step),
            .warns = !load_or_init,
            .kept_bytes = kept_bytes};
  }
  ScheduleSource schedule_source() const {
    return override_schedule         ? ScheduleSource::command_line
           : use_checkpoint_schedule ? ScheduleSource::checkpoint
                                     : ScheduleSource::must_agree;
  }
  train::CheckpointWriterOptions writer() const {
    // Retaining some implies deleting the others, as in Megatron-LM.
    const int kept = keep_last.value_or(retain_interval > 0 ? 1 : 0);
    return {.asynchronous = async_save,
            .on_error = on_save_error,
            .keep = {.keep_last = kept, .retain_interval = retain_interval},
            .optimizer = saved_optimizer(),
            .continues = continues_in_save()};
  }

 private:
  static train::OptimizerState state_of(bool left_out) {
    return left_out ? train::OptimizerState::left_out : train::OptimizerState::kept;
  }
};

}  // namespace trireme::app
