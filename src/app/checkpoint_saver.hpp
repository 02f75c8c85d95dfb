#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>

#include "src/app/run_config/run_attributes.hpp"
#include "src/app/run_config/train_options.hpp"
#include "src/checkpoint/store.hpp"
#include "src/comm/communicator.hpp"
#include "src/train/host_state.hpp"
#include "src/train/trainer.hpp"

namespace trireme::app {

/// Saves the checkpoints of a training run: at once, or with `--async-save` on a thread behind the training. With
/// `--on-save-error continue` a save that fails is a warning, unless it is that of the run's last state.
class CheckpointSaver {
 public:
  /// Takes the folder of `--save` (checkpoint::prepare_saving). Collective. `world`, `trainer` and `state` must live
  /// longer; `attributes` and `tokenizer` go into every checkpoint.
  CheckpointSaver(Communicator& world, const TrainCommandOptions& options, train::Trainer& trainer,
                  train::HostState& state, Attributes attributes, std::string tokenizer);

  /// Saves the present state, or begins to. Collective.
  void save();
  /// Starts the writing where the copy of the state is complete. Not collective.
  void go_on();
  /// Waits until the state that was saved last is on the disk. Throws where it is not. Collective.
  void finish();

 private:
  void write(Communicator& ranks, const checkpoint::RunDescription& description);
  void start_writing();
  void wait();
  template <class Action>
  void attempt(std::int64_t step, const Action& action);

  Communicator& world_;
  train::Trainer& trainer_;
  train::HostState& state_;
  Attributes attributes_;
  std::string tokenizer_;
  int keep_last_ = 0;
  OnSaveError on_error_ = OnSaveError::stop;
  std::unique_ptr<checkpoint::Store> store_;
  std::unique_ptr<Communicator> writers_;  // of the threads that write behind the training; else null
  std::int64_t step_ = -1;                 // saved last
  bool failed_ = false;                    // to save it
  std::function<void()> write_copy_;       // once the copy of the state is there
  std::future<void> writing_;
};

}  // namespace trireme::app
