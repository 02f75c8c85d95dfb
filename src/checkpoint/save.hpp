#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/checkpoint/state.hpp"
#include "src/checkpoint/step_writer.hpp"
#include "src/checkpoint/store.hpp"
#include "src/comm/communicator.hpp"

/// Saving, in a trainer (all of it collective over `world`, a communicator of host memory):
///
///   io::CheckpointStore store(root);
///   prepare_saving(store, world, trainer.state_tensors(), step);  // before the first step
///   ...
///   save(store, world, description, trainer.state_tensors(), {.keep_last = 2});
///
/// `StateTensor::data` is host memory. For loading see load.hpp.
namespace trireme::checkpoint {

struct SaveOptions {
  int keep_last = 0;                 ///< complete steps kept after a save, including the new one; 0 keeps all
  std::int64_t retain_interval = 0;  ///< multiples are kept indefinitely, besides the last ones; 0: none
  /// If positive, the newest complete step that is at least so much older than the new one is kept, and those after it.
  std::int64_t rewind_distance = 0;
};

/// Checks before the first step that these tensors can be saved. The store must be writable, have room (1.2 times the
/// size of a step), and be visible to all ranks. It must not be in use by another job; it is locked for this one for
/// the lifetime of `store`. Each element of each tensor must have exactly one writing rank. Warns of steps beyond
/// `step`, where the run begins: they belong to another branch of the run and would be loaded first.
void prepare_saving(Store& store, Communicator& world, std::span<const StateTensor> tensors, std::int64_t step = 0);

/// Saves a step: every rank writes its pieces (those `written_here`) into one file, rank 0 the manifest. The blobs and
/// attributes are those of rank 0. On return the step is on disk and is the latest one. If it throws, on all ranks
/// together, the written files are removed and earlier steps are intact.
///
/// With `keep_last` the step is then read back and checked against its digests, with the files divided evenly among
/// ranks. If it is damaged, that is an error with exit code 5, and no other step is touched. Otherwise older steps are
/// removed, except the last ones that look complete, `keep_last` including the new one, and those of `retain_interval`
/// and `rewind_distance`.
/// A failure to remove is logged, not thrown. Steps with larger numbers are left alone.
void save(Store& store, Communicator& world, const RunDescription& description, std::span<const StateTensor> tensors,
          const SaveOptions& options = {});

/// The files that `save` writes: one a rank. Throws unless each element of each tensor has one writer. Collective.
std::vector<ShardContent> shards_of(Communicator& world, const RunDescription& description,
                                    std::span<const StateTensor> tensors);

/// Verifies a step that was just committed, and removes others as `save` does. Collective.
void keep(Store& store, Communicator& world, std::int64_t step, const SaveOptions& options);

}  // namespace trireme::checkpoint
