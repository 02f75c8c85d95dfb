#include "src/app/run_config/checkpoint_options.hpp"

#include <filesystem>

#include "io/checkpoint/checkpoint_store.hpp"
#include "io/posix/folder.hpp"

namespace trireme::app {
namespace {

bool is_same_folder(const std::string& a, const std::string& b) {
  return a == b || (!a.empty() && !b.empty() && io::full_path(a) == io::full_path(b));
}

}  // namespace

bool CheckpointOptions::saves_to(const std::string& folder) const { return is_same_folder(folder, save); }

bool CheckpointOptions::goes_on_in_place() const { return saves_to(load) && !starts_anew() && !no_load_optimizer; }

bool CheckpointOptions::continues_in_save() const {
  if (load.empty() || starts_anew() || no_load_optimizer) return false;
  const std::filesystem::path path = io::full_path(load);
  return saves_to(load) || (io::is_step_name(path.filename().string()) && saves_to(path.parent_path().string()));
}

std::string CheckpointOptions::continuation() const {
  if (goes_on_in_place() && !step) return "run the same command again to continue";
  std::string left_out;
  for (const auto& [given, name] : {std::pair{finetune, "--finetune"},
                                    {upcycling, "--moe-use-upcycling"},
                                    {no_load_optimizer, "--no-load-optim"},
                                    {step.has_value(), "--ckpt-step"}}) {
    if (given) left_out += (left_out.empty() ? ", without " : " and ") + std::string(name);
  }
  return "continue with --load of the folder of --save" + left_out;
}

void CheckpointOptions::declare(Options& options, RunKind kind) {
  options.add("save", &save, "DIR", "Folder for checkpoints.");
  options.add("load", &load, "DIR", "Resume from the newest checkpoint in this folder, or from one step's folder.");
  options.add("ckpt-step", &step, "N", "With --load: the checkpoint of this iteration instead of the newest.",
              at_least(0));
  options.add_flag("load-or-init", &load_or_init, "With --load: start from scratch if there is no checkpoint yet.");
  options.add_flag(
      "exit-on-missing-checkpoint", &exit_on_missing,
      "With --load and --save of the same folder: fail if it has no checkpoint. Without this option such a run starts "
      "from scratch, with a warning.");
  if (kind == RunKind::pretraining) {
    options.add_flag(
        "finetune", &finetune,
        "With --load: start a new run from the weights of the checkpoint. Resets iteration, samples, moments, "
        "learning rate and loss scale; data and optimizer may differ.");
    options.add_flag(
        "moe-use-upcycling", &upcycling,
        "With --load of a dense model and --num-experts: start a new run, as with --finetune, in which every expert "
        "begins as a copy of its layer's feed-forward block.");
    options.add("moe-upcycling-granularity", &upcycling_granularity, "G",
                "With --moe-use-upcycling: experts are the G parts of the block, of 1/G of its width.",
                between(1, static_cast<double>(model::max_experts)));
    options.add_flag("use-checkpoint-args", &use_model,
                     "With --load: take the model, its dropout and --seq-length from the checkpoint. A given shape or "
                     "sequence length stays, and the shape must match the checkpoint's. Other options of the model are "
                     "ignored, each with a line in the log.");
  }
  options.add_flag(
      "no-load-optim", &no_load_optimizer,
      "With --load: resume with the weights and counters of the checkpoint; reset moments and loss scale.");
  options.add_flag("no-save-optim", &no_save_optimizer,
                   "Save weights without the optimizer's state. A run resumes from such a checkpoint only with "
                   "--no-load-optim.");
  options.add_flag(
      "allow-new-data", &allow_new_data,
      "With --load: resume with other corpora or another order of samples, from the sample number that the checkpoint "
      "has reached.");
  options.add_flag(
      "override-opt-param-scheduler,override-opt_param-scheduler", &override_schedule,
      "With --load: resume with this command line's learning rate and weight decay. Without it, and without "
      "--use-checkpoint-opt-param-scheduler, all of their settings must match the checkpoint's.");
  options.add_flag("use-checkpoint-opt-param-scheduler,use-checkpoint-opt_param-scheduler", &use_checkpoint_schedule,
                   "With --load: resume with the checkpoint's learning rate and weight decay.");
  options.add("save-interval", &save_interval, "N", "Iterations between checkpoints.", at_least(1));
  options.add(
      "keep-last", &keep_last, "K",
      "Keep only the K newest checkpoints, and those that --rewind-on-spike may load; 0: all. Default 0, or 1 with "
      "--save-retain-interval.",
      at_least(0));
  options.add("save-retain-interval", &retain_interval, "N",
              "Never delete the checkpoints of iterations divisible by N, in addition to those of --keep-last.",
              at_least(1));
  options.add_flag("async-save", &async_save,
                   "Write checkpoints during training, from a copy of the state in host memory. A write error is "
                   "reported at the next save, or at the end of the run.");
  options.add("local-checkpoint-interval", &local_interval, "N",
              "Iterations between local checkpoints: each node keeps the last two in the folder of "
              "--local-checkpoint-dir, with copies of those of another node, and a run continues from them after a "
              "fault, also of one node. Those of --save-interval are copied to --save during training.",
              at_least(1));
  options.add("local-checkpoint-dir", &local_folder, "DIR",
              "Folder of each node for local checkpoints: in its memory, such as /dev/shm/RUN, or on its own disk. "
              "Each job of a node needs another.");
  options.add_choice(
      "on-save-error", &on_save_error, {{"stop", train::OnSaveError::stop}, {"continue", train::OnSaveError::warn}},
      "If a checkpoint cannot be written: end the run with exit code 5, or warn, keep training and retry at the next "
      "save. Failing to save the last state is always exit code 5.");
}

void CheckpointOptions::check(const Options& options, Problems& problems) const {
  problems.need(options,
                {"load-or-init", "exit-on-missing-checkpoint", "ckpt-step", "finetune", "moe-use-upcycling",
                 "use-checkpoint-args", "no-load-optim", "allow-new-data", "override-opt-param-scheduler",
                 "use-checkpoint-opt-param-scheduler"},
                !load.empty(), "--load");
  problems.need(options, {"local-checkpoint-dir"}, local_interval > 0 && !save.empty(),
                "--local-checkpoint-interval and --save");
  problems.need(options, {"local-checkpoint-interval"}, !local_folder.empty() && !save.empty(),
                "--local-checkpoint-dir and --save");
  problems.expect(
      local_folder.empty() || !is_same_folder(local_folder, save),
      fmt::format("--local-checkpoint-dir {} is the folder of --save: name one that each node has for itself",
                  local_folder));
  problems.exclude(local_interval == 0 || !no_save_optimizer, "local-checkpoint-interval", "no-save-optim",
                   "a run continues from local checkpoints by itself");
  problems.need(options, {"no-save-optim", "save-interval", "async-save", "on-save-error"}, !save.empty(), "--save");
  problems.expect(keep_last.value_or(0) == 0 || !save.empty(), "--keep-last needs --save");
  problems.need(options, {"save-retain-interval"}, save_interval > 0, "--save-interval and --save");
  problems.need(options, {"moe-upcycling-granularity"}, upcycling,
                "--moe-use-upcycling, --load, --num-experts and --disable-bias-linear");
  problems.exclude(!upcycling || !use_model, "moe-use-upcycling", "use-checkpoint-args",
                   "the checkpoint's model has no experts");
  problems.exclude(!exit_on_missing || !load_or_init, "exit-on-missing-checkpoint", "load-or-init");
  problems.exclude(!step || !load_or_init, "ckpt-step", "load-or-init", "a named step must exist");
  problems.exclude(!override_schedule || !use_checkpoint_schedule, "override-opt-param-scheduler",
                   "use-checkpoint-opt-param-scheduler");
  problems.exclude(retain_interval == 0 || keep_last.value_or(1) > 0, "save-retain-interval", "keep-last 0",
                   "--keep-last 0 keeps all checkpoints");
  problems.expect(
      retain_interval == 0 || save_interval == 0 || retain_interval % save_interval == 0,
      fmt::format("--save-retain-interval {} is not a multiple of --save-interval {}: its checkpoints would never be "
                  "saved",
                  retain_interval, save_interval));
}

}  // namespace trireme::app
