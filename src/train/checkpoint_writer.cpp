#include "src/train/checkpoint_writer.hpp"

#include <algorithm>

#include "src/base/log.hpp"
#include "src/base/signals.hpp"
#include "src/checkpoint/load.hpp"

namespace trireme::train {

CheckpointWriter::CheckpointWriter(checkpoint::Store& store, Communicator& world, Trainer& trainer, HostState& state,
                                   Attributes attributes, const std::map<std::string, std::string>& blobs,
                                   const CheckpointWriterOptions& options)
    : store_(store),
      world_(world),
      trainer_(trainer),
      state_(state),
      attributes_(std::move(attributes)),
      blobs_(blobs),
      options_(options),
      first_step_(trainer.progress().iteration) {
  put_optimizer_state(attributes_, options.optimizer);
  checkpoint::prepare_saving(store_, world, state.tensors(), first_step_);
  if (options.continues) remove_abandoned();
  if (!options.asynchronous) return;
  writers_ = world.split(0, world.rank(), "checkpoint writers");
  trainer.before_update([&state] { state.keep_order(); });
}

/// Counts the time of a call in which training waits.
class CheckpointWriter::Blocked {
 public:
  explicit Blocked(CheckpointWriter& writer) : writer_(writer) { writer_.blocked_.emplace(); }
  ~Blocked() {
    writer_.blocked_ms_ = writer_.blocked_ms();
    writer_.blocked_.reset();
  }
  Blocked& operator=(Blocked&&) = delete;

 private:
  CheckpointWriter& writer_;
};

/// Runs `action`, which saves step `step`. With OnSaveError::warn, logs a failure that is common to all ranks. Rethrows
/// any other, after which the other ranks would wait for this one.
template <class Action>
void CheckpointWriter::attempt(std::int64_t step, const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    const bool common = world_.size() == 1 || dynamic_cast<const CollectiveError*>(&error) != nullptr;
    if (options_.on_error == OnSaveError::stop || !common || error.exit_code() != ExitCode::io) throw;
    failed_ = true;
    if (world_.rank() != 0) return;
    log::warn("STEP {} IS NOT SAVED, training continues and retries at the next save: {}", step, error.what());
  }
}

void CheckpointWriter::save() {
  const Blocked blocked(*this);
  attempt(step_, [&] { wait(); });
  step_ = trainer_.progress().iteration;
  failed_ = false;
  checkpoint::RunDescription description{.step = step_, .attributes = attributes_, .blobs = blobs_};
  description.attributes.merge(trainer_.state_attributes());
  trainer_.await_update();
  if (!writers_) {
    state_.fetch();
    attempt(step_, [&] { write(world_, description); });
    if (!failed_) note_save(SaveEvent::saved);
    return;
  }
  state_.begin_fetch();
  write_copy_ = [this, description = std::move(description)] { write(*writers_, description); };
  on_event_(SaveEvent::begun, step_);
  poll();
}

void CheckpointWriter::write(Communicator& ranks, const checkpoint::RunDescription& description) {
  checkpoint::save(store_, ranks, description, state_.tensors(), options_.keep);
}

/// Requires the complete copy, so that the thread never uses the device.
void CheckpointWriter::start_writing() {
  writing_ = std::async(std::launch::async, [write = std::exchange(write_copy_, {})] {
    use_alternate_signal_stack();
    write();
  });
}

void CheckpointWriter::poll() {
  if (write_copy_ && state_.fetched()) start_writing();
}

void CheckpointWriter::wait() {
  if (write_copy_) {
    state_.wait();
    start_writing();
  }
  if (!writing_.valid()) return;
  writing_.get();
  note_save(SaveEvent::arrived);
}

void CheckpointWriter::note_save(SaveEvent event) {
  own_.insert(step_);
  on_event_(event, step_);
  if (std::exchange(abandons_, false)) remove_abandoned();
}

std::optional<Rewind> CheckpointWriter::rewind(std::int64_t newest) {
  attempt(step_, [&] { wait(); });
  const auto is_candidate = [&](const checkpoint::StepEntry& entry) {
    return entry.step <= newest && (own_.contains(entry.step) || (options_.continues && entry.step <= first_step_));
  };
  if (!checkpoint::has_checkpoint(store_, world_, is_candidate)) return {};
  const auto step = checkpoint::open_checkpoint(store_, world_, {}, checkpoint::Verification::at_opening, is_candidate);
  trainer_.await_update();
  checkpoint::load(*step, world_, state_.tensors());
  state_.store();
  const Rewind rewind = trainer_.rewind(step->manifest().attributes);
  own_.erase(own_.upper_bound(rewind.to), own_.end());
  abandons_ = true;
  return rewind;
}

void CheckpointWriter::remove_abandoned() {
  const std::vector<Rewind>& rewinds = trainer_.spikes().rewinds();
  collectively(world_, [&] {
    if (world_.rank() != 0 || rewinds.empty()) return;
    for (const checkpoint::StepEntry& entry : store_.steps()) {
      const bool is_abandoned = std::ranges::any_of(
          rewinds, [&](const Rewind& rewind) { return rewind.to < entry.step && entry.step < rewind.from; });
      if (is_abandoned && !entry.replaced) store_.remove(entry.name);
    }
  });
}

void CheckpointWriter::finish() {
  const Blocked blocked(*this);
  wait();
  if (failed_) {
    throw CollectiveError(ExitCode::io,
                          fmt::format("the last state of the run, step {}, is not saved: see the warning above; "
                                      "earlier checkpoints are complete",
                                      step_));
  }
}

}  // namespace trireme::train
