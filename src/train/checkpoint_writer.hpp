#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "src/base/timer.hpp"
#include "src/checkpoint/branch.hpp"
#include "src/checkpoint/local_steps.hpp"
#include "src/checkpoint/save.hpp"
#include "src/checkpoint/store.hpp"
#include "src/comm/communicator.hpp"
#include "src/train/state_tensors.hpp"
#include "src/train/trainer.hpp"

namespace trireme::train {

/// Reaction to a checkpoint that cannot be written.
enum class OnSaveError { stop, warn };

/// Event in the life of a checkpoint. An asynchronous one is begun, and arrives later.
enum class SaveEvent { saved, begun, arrived };

struct CheckpointWriterOptions {
  bool asynchronous = false;  ///< writes on a thread while training continues
  OnSaveError on_error = OnSaveError::stop;
  checkpoint::SaveOptions keep = {};  ///< older checkpoints to keep
  OptimizerState optimizer = OptimizerState::kept;
  bool continues = false;                   ///< earlier steps in the store are of this run
  checkpoint::LocalSteps* local = nullptr;  ///< if given, steps are saved there first, and copied to the store behind
  std::int64_t local_start = -1;            ///< local step that the run continues from, which must stay; -1: none
  checkpoint::Lineage lineage = {};         ///< attempts of the run, with local steps
};

/// Saves the checkpoints of a training run.
///
/// With local steps, `save` and `save_locally` copy the state to host memory, from which a thread writes a local step.
/// Another thread then copies those of `save` to the store. If local steps cannot be saved, a warning says so once, and
/// `save` writes to the store.
class CheckpointWriter {
 public:
  /// Claims `store` (checkpoint::prepare_saving). Collective. `store`, `world`, `trainer`, `state` and `blobs` must
  /// outlive it. `state` has the tensors that `options` request; an asynchronous or local writer needs its own memory.
  /// Every checkpoint contains `attributes`, and `blobs` as they are when it is saved.
  CheckpointWriter(checkpoint::Store& store, Communicator& world, Trainer& trainer, HostState& state,
                   Attributes attributes, const std::map<std::string, std::string>& blobs,
                   const CheckpointWriterOptions& options);

  /// Calls `on_event` on every rank from now on.
  void observe(std::function<void(SaveEvent, std::int64_t step)> on_event) { on_event_ = std::move(on_event); }
  /// Returns whether a run can resume from these checkpoints as if it had never stopped.
  bool resumable() const { return options_.optimizer == OptimizerState::kept; }
  /// Returns whether the state from which the run starts is in the store, or a local step.
  bool store_has_start() const { return options_.continues && options_.local_start < 0; }
  bool starts_locally() const { return options_.local_start >= 0; }
  /// Time that training waited for this object.
  double blocked_ms() const { return blocked_ms_ + (blocked_ ? blocked_->elapsed_ms() : 0); }
  /// Saves the current state, or starts to. With OnSaveError::warn a failed save is a warning. Collective.
  void save();
  /// Likewise a local step, if there are any.
  void save_locally();
  /// Returns the time that training waited for local steps since the last call; empty without local steps.
  std::optional<double> take_local_ms();
  /// Goes back to the newest intact checkpoint of this run that is at most of iteration `newest`: loads it, and skips
  /// the iterations since (Trainer::rewind). Nothing if there is none. The checkpoints between are removed by the next
  /// save, once it is on the disk: a run killed before finds the same spike again. Collective.
  std::optional<Rewind> rewind(std::int64_t newest);
  /// Starts writing once the copy of the state is complete, and reports a step that a thread has written. To be called
  /// after every iteration. Not collective.
  void poll();
  /// Waits until the last saved state is on the disk. Throws if it is not, whatever `on_error`. Removes local steps if
  /// the store has the trainer's state. Collective.
  void finish();

 private:
  enum class Reach { node, everywhere };
  void save_to(Reach reach);
  void write(Communicator& ranks, const checkpoint::RunDescription& description);
  bool write_locally(const checkpoint::RunDescription& description);
  void copy_to_store(std::int64_t step);
  template <class Action>
  bool attempt_locally(const Action& action);
  void start_writing();
  void wait_for_writing();
  void wait();
  class Blocked;
  /// Notes that the last save is in the store.
  void keep_step(SaveEvent event);
  /// Removes what the last rewind abandoned: a later step is in the store. Collective.
  void finish_rewind();
  /// Removes the checkpoints between those that the run went back to and those where it went on. Collective.
  void remove_abandoned();
  template <class Action>
  void attempt(std::int64_t step, const Action& action);

  checkpoint::Store& store_;
  Communicator& world_;
  Trainer& trainer_;
  HostState& state_;
  Attributes attributes_;
  const std::map<std::string, std::string>& blobs_;
  CheckpointWriterOptions options_;
  std::function<void(SaveEvent, std::int64_t step)> on_event_ = [](SaveEvent, std::int64_t) {};
  std::unique_ptr<Communicator> writers_;  // group of the writing threads; null if synchronous
  std::unique_ptr<Communicator> copiers_;  // group of the threads that copy local steps; null without
  std::int64_t step_ = -1;                 // step of the last save to the store
  bool arrives_ = false;                   // a thread writes it
  std::atomic<bool> arrived_ = false;      // and has written it: not yet reported
  std::int64_t first_step_;                // iteration at which this attempt begins
  std::set<std::int64_t> own_;             // steps saved by this attempt, unless abandoned
  bool abandons_ = false;                  // the last rewind's checkpoints are to be removed
  bool failed_ = false;                    // the last save failed
  double blocked_ms_ = 0;                  // during earlier calls
  std::optional<Timer> blocked_;           // during a call
  std::function<void()> write_copy_;       // pending until the copy of the state is complete
  bool saves_locally_ = false;             // changed by the writing thread
  double local_ms_ = 0;                    // wait for local steps, not yet taken
  double all_local_ms_ = 0;                // wait for all local steps
  std::int64_t local_steps_ = 0;
  std::atomic<std::int64_t> copied_ = -1;     // local step that is being copied
  std::atomic<std::int64_t> committed_ = -1;  // newest step in the store
  std::future<void> copying_;                 // set by the writing thread
  std::future<void> writing_;
};

}  // namespace trireme::train
