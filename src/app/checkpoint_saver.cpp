#include "src/app/checkpoint_saver.hpp"

#include <utility>

#include "io/checkpoint/checkpoint_store.hpp"
#include "src/base/log.hpp"
#include "src/base/signals.hpp"
#include "src/checkpoint/save.hpp"

namespace trireme::app {

CheckpointSaver::CheckpointSaver(Communicator& world, const TrainCommandOptions& options, train::Trainer& trainer,
                                 train::HostState& state, Attributes attributes, std::string tokenizer)
    : world_(world),
      trainer_(trainer),
      state_(state),
      attributes_(std::move(attributes)),
      tokenizer_(std::move(tokenizer)),
      keep_last_(options.keep_last),
      on_error_(options.on_save_error) {
  collectively(world, [&] { store_ = std::make_unique<io::CheckpointStore>(options.save); });
  checkpoint::prepare_saving(*store_, world, state.tensors(), trainer.progress().iteration);
  if (!options.async_save) return;
  writers_ = world.split(0, world.rank(), "checkpoint writers");
  trainer.before_update([&state] { state.keep_order(); });
}

/// Runs `action`, which saves step `step`, and passes over its failure where that is wanted. Only over one that all
/// ranks know of: the others would wait for this one.
template <class Action>
void CheckpointSaver::attempt(std::int64_t step, const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    const bool common = world_.size() == 1 || dynamic_cast<const CollectiveError*>(&error) != nullptr;
    if (on_error_ == OnSaveError::stop || !common || error.exit_code() != ExitCode::io) throw;
    failed_ = true;
    if (world_.rank() != 0) return;
    log::warn("STEP {} IS NOT SAVED, training goes on (--on-save-error continue) and tries again at the next save: {}",
              step, error.what());
  }
}

void CheckpointSaver::save() {
  attempt(step_, [&] { wait(); });
  step_ = trainer_.progress().iteration;
  failed_ = false;
  checkpoint::RunDescription description{step_, attributes_, {}};
  description.attributes.merge(trainer_.state_attributes());
  description.blobs["tokenizer"] = tokenizer_;
  if (!writers_) {
    state_.fetch();
    attempt(step_, [&] { write(world_, description); });
    return;
  }
  state_.begin_fetch();
  write_copy_ = [this, description = std::move(description)] { write(*writers_, description); };
  go_on();
}

void CheckpointSaver::write(Communicator& ranks, const checkpoint::RunDescription& description) {
  checkpoint::save(*store_, ranks, description, state_.tensors(), {.keep_last = keep_last_});
}

/// The thread begins when the copy is there: it has nothing to do with the device.
void CheckpointSaver::start_writing() {
  writing_ = std::async(std::launch::async, [write = std::exchange(write_copy_, {})] {
    use_alternate_signal_stack();
    write();
  });
}

void CheckpointSaver::go_on() {
  if (write_copy_ && state_.fetched()) start_writing();
}

void CheckpointSaver::wait() {
  if (write_copy_) {
    state_.wait();
    start_writing();
  }
  if (writing_.valid()) writing_.get();
}

void CheckpointSaver::finish() {
  wait();
  if (failed_) {
    throw CollectiveError(ExitCode::io,
                          fmt::format("the last state of the run, step {}, is not saved: the warning above "
                                      "says why; what was saved before is whole",
                                      step_));
  }
}

}  // namespace trireme::app
