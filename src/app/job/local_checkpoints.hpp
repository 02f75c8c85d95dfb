#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "io/checkpoint/checkpoint_store.hpp"
#include "src/app/job/job.hpp"
#include "src/app/job/saved_model.hpp"
#include "src/app/run_config/checkpoint_options.hpp"
#include "src/checkpoint/branch.hpp"
#include "src/checkpoint/local_steps.hpp"

namespace trireme::app {

/// Local checkpoints of a training job: a folder on each node. The file `.branch` in the folder of --save has the
/// attempts of the run, by which a start finds out whether a local step is of this run and was not left by it.
class LocalCheckpoints {
 public:
  /// Locks the folders that exist. ConfigError if one has checkpoints that are not local ones. Collective.
  LocalCheckpoints(const Job& job, const CheckpointOptions& options);

  /// Opens the newest local step that continues from the newest one of --load, or else that of --load, as
  /// `open_checkpoint` does. Notes which. Collective.
  OpenCheckpoint open_start();
  /// Gets this node the files that hold elements of `tensors`, if the start is a local step. Collective.
  void fetch(checkpoint::StepReader& start, std::span<const checkpoint::StateTensor> tensors);
  /// Returns whether the start is a local step.
  bool starts_locally() const { return start_ >= 0; }
  /// Adds the local steps to the options of a writer, for an attempt that continues after `iteration`. Collective.
  void add_to(train::CheckpointWriterOptions& options, std::int64_t iteration);
  /// Records this attempt in the folder of --save, which the writer has locked, before it saves. Collective.
  void record_attempt();

 private:
  std::string branch_path() const;
  OpenCheckpoint open_local(const OpenCheckpoint& shared);

  const Job& job_;
  const CheckpointOptions& options_;
  io::CheckpointStore store_;
  std::unique_ptr<Communicator> world_;  // its calls may be made by a thread that writes
  checkpoint::LocalSteps steps_;
  checkpoint::Lineage lineage_;
  std::int64_t start_ = -1;  // local step that the run continues from
};

}  // namespace trireme::app
