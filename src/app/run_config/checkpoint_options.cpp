#include "src/app/run_config/checkpoint_options.hpp"

namespace trireme::app {

void CheckpointOptions::declare(Options& options, RunKind kind) {
  options.add("save", &save, "DIR", "Folder for checkpoints.");
  options.add("load", &load, "DIR", "Continue from the newest checkpoint of this folder, or from one step's folder.");
  options.add("ckpt-step", &step, "N", "With --load: the checkpoint of this iteration in place of the newest.",
              at_least(0));
  options.add_flag("load-or-init", &load_or_init, "With --load: begin anew where there is no checkpoint yet.");
  options.add_flag(
      "exit-on-missing-checkpoint", &exit_on_missing,
      "With --load and --save of one folder: an error where it has no checkpoint. Without this option such "
      "a run begins anew, with a warning.");
  if (kind == RunKind::pretraining) {
    options.add_flag("finetune", &finetune,
                     "With --load: begin a new run with the weights of the checkpoint. Iteration, samples, moments, "
                     "learning rate and loss scale begin anew; data and optimizer may be others.");
    options.add_flag("use-checkpoint-args", &use_model,
                     "With --load: the model, its dropout and --seq-length are the checkpoint's. A shape or sequence "
                     "length that is given stays, and the shape must be the checkpoint's; other options of the model "
                     "are set aside, each with a line of the log.");
  }
  options.add_flag("no-load-optim", &no_load_optimizer,
                   "With --load: go on with the weights and counters of the checkpoint; moments and loss scale begin "
                   "anew.");
  options.add_flag("no-save-optim", &no_save_optimizer,
                   "Save weights without the optimizer's state. From such a checkpoint a run goes on with "
                   "--no-load-optim alone.");
  options.add_flag(
      "allow-new-data", &allow_new_data,
      "With --load: go on with other corpora or another order of samples; it begins at the sample number the "
      "checkpoint has reached.");
  options.add_flag(
      "override-opt-param-scheduler,override-opt_param-scheduler", &override_schedule,
      "With --load: go on with this command line's learning rate and weight decay. Without it, and without "
      "--use-checkpoint-opt-param-scheduler, all of their settings must be the checkpoint's.");
  options.add_flag("use-checkpoint-opt-param-scheduler,use-checkpoint-opt_param-scheduler", &use_checkpoint_schedule,
                   "With --load: go on with the checkpoint's learning rate and weight decay.");
  options.add("save-interval", &save_interval, "N", "Iterations between checkpoints.", at_least(1));
  options.add("keep-last", &keep_last, "K",
              "Keep only the K newest checkpoints; 0: all. Default all; 1 with --save-retain-interval.", at_least(0));
  options.add("save-retain-interval", &retain_interval, "N",
              "Keep for ever the checkpoints of iterations divisible by N, beside those of --keep-last.", at_least(1));
  options.add_flag("async-save", &async_save,
                   "Write checkpoints during training, from a copy of the state in host memory. A write error is "
                   "reported at the next save, or at the end of the run.");
  options.add_choice("on-save-error", &on_save_error,
                     {{"stop", train::OnSaveError::stop}, {"continue", train::OnSaveError::warn}},
                     "When a checkpoint cannot be written: end the run with exit code 5, or warn, train on and try "
                     "again at the next save. A last state that is not saved is exit code 5 in any case.");
}

void CheckpointOptions::check(const Options& options, Problems& problems) const {
  problems.expect(!load_or_init || !load.empty(), "--load-or-init needs --load");
  problems.expect(!exit_on_missing || !load.empty(), "--exit-on-missing-checkpoint needs --load");
  problems.expect(!exit_on_missing || !load_or_init,
                  "--exit-on-missing-checkpoint and --load-or-init exclude each other");
  problems.expect(!step || !load.empty(), "--ckpt-step needs --load");
  problems.expect(!step || !load_or_init,
                  "--ckpt-step and --load-or-init exclude each other: a step that is named must be there");
  problems.expect(!finetune || !load.empty(), "--finetune needs --load");
  problems.expect(!use_model || !load.empty(), "--use-checkpoint-args needs --load");
  problems.expect(!no_load_optimizer || !load.empty(), "--no-load-optim needs --load");
  problems.expect(!no_save_optimizer || !save.empty(), "--no-save-optim needs --save");
  problems.expect(!allow_new_data || !load.empty(), "--allow-new-data needs --load");
  problems.expect(!override_schedule || !load.empty(), "--override-opt-param-scheduler needs --load");
  problems.expect(!use_checkpoint_schedule || !load.empty(), "--use-checkpoint-opt-param-scheduler needs --load");
  problems.expect(!override_schedule || !use_checkpoint_schedule,
                  "--override-opt-param-scheduler and --use-checkpoint-opt-param-scheduler exclude each other");
  problems.expect(save_interval == 0 || !save.empty(), "--save-interval needs --save");
  problems.expect(!async_save || !save.empty(), "--async-save needs --save");
  problems.expect(keep_last.value_or(0) == 0 || !save.empty(), "--keep-last needs --save");
  problems.expect(retain_interval == 0 || save_interval > 0, "--save-retain-interval needs --save-interval");
  problems.expect(retain_interval == 0 || keep_last.value_or(1) > 0,
                  "--save-retain-interval and --keep-last 0 exclude each other: --keep-last 0 keeps all checkpoints");
  problems.expect(retain_interval == 0 || save_interval == 0 || retain_interval % save_interval == 0,
                  fmt::format("--save-retain-interval {} is no multiple of --save-interval {}: its checkpoints would "
                              "never be saved",
                              retain_interval, save_interval));
  problems.expect(!options.given("on-save-error") || !save.empty(), "--on-save-error needs --save");
}

}  // namespace trireme::app
