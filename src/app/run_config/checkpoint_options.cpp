#include "src/app/run_config/checkpoint_options.hpp"

namespace trireme::app {

void CheckpointOptions::declare(Options& options) {
  options.add("save", &save, "DIR", "Folder for checkpoints.");
  options.add("load", &load, "DIR", "Continue from the newest checkpoint of this folder, or from one step's folder.");
  options.add_flag("load-or-init", &load_or_init, "With --load: begin anew where there is no checkpoint yet.");
  options.add_flag(
      "allow-new-data", &allow_new_data,
      "With --load: go on with other corpora or another order of samples; it begins at the sample number the "
      "checkpoint has reached.");
  options.add("save-interval", &save_interval, "N", "Iterations between checkpoints.", at_least(1));
  options.add("keep-last", &keep_last, "K", "Keep only the K newest checkpoints; 0: all.", at_least(0));
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
  problems.expect(!allow_new_data || !load.empty(), "--allow-new-data needs --load");
  problems.expect(save_interval == 0 || !save.empty(), "--save-interval needs --save");
  problems.expect(!async_save || !save.empty(), "--async-save needs --save");
  problems.expect(keep_last == 0 || !save.empty(), "--keep-last needs --save");
  problems.expect(!options.given("on-save-error") || !save.empty(), "--on-save-error needs --save");
}

}  // namespace trireme::app
