#pragma once

#include <string>

#include "src/app/options/options.hpp"
#include "src/app/run_config/problems.hpp"
#include "src/train/checkpoint_writer.hpp"

namespace trireme::app {

/// Options of the checkpoints of a run.
struct CheckpointOptions {
  std::string save;
  std::string load;
  bool load_or_init = false;
  bool allow_new_data = false;
  std::int64_t save_interval = 0;
  int keep_last = 0;
  bool async_save = false;
  train::OnSaveError on_save_error = train::OnSaveError::stop;

  void declare(Options& options);
  void check(const Options& options, Problems& problems) const;
  train::CheckpointWriterOptions writer() const {
    return {.asynchronous = async_save, .on_error = on_save_error, .keep_last = keep_last};
  }
};

}  // namespace trireme::app
