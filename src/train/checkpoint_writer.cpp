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
  if (options.local != nullptr) {
    committed_ = options.lineage.base;
    copiers_ = world.split(0, world.rank(), "checkpoint copiers");
    saves_locally_ = attempt_locally([&] { options_.local->prepare(state_.tensors(), options_.local_start); });
  }
  if (!options.asynchronous && options.local == nullptr) return;
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
  arrives_ = failed_ = false;
  save_to(Reach::everywhere);
}

void CheckpointWriter::save_locally() {
  if (options_.local == nullptr) return;
  const Blocked blocked(*this);
  const Timer timer;
  attempt(step_, [&] { wait_for_writing(); });
  if (!saves_locally_) return;  // the same on all ranks: no thread writes
  save_to(Reach::node);
  local_steps_ += 1;
  local_ms_ += timer.elapsed_ms();
  all_local_ms_ += timer.elapsed_ms();
}

std::optional<double> CheckpointWriter::take_local_ms() {
  if (options_.local == nullptr) return std::nullopt;
  return std::exchange(local_ms_, 0);
}

void CheckpointWriter::save_to(Reach reach) {
  const std::int64_t step = trainer_.progress().iteration;
  checkpoint::RunDescription description{.step = step, .attributes = attributes_, .blobs = blobs_};
  description.attributes.merge(trainer_.state_attributes());
  if (options_.local != nullptr) {
    checkpoint::put_lineage(description.attributes, {options_.lineage.branch, committed_});
  }
  trainer_.await_update();
  if (!writers_) {
    state_.fetch();
    attempt(step_, [&] { write(world_, description); });
    if (!failed_) {
      keep_step(SaveEvent::saved);
      finish_rewind();
    }
    return;
  }
  state_.begin_fetch();
  write_copy_ = [this, reach, description = std::move(description)] {
    const bool is_local = saves_locally_ && write_locally(description);
    if (reach == Reach::node) return;
    if (!is_local) {
      write(*writers_, description);
      arrived_ = true;
      return;
    }
    copied_ = description.step;
    copying_ = std::async(std::launch::async, [this, step = description.step] {
      use_alternate_signal_stack();
      copy_to_store(step);
    });
  };
  if (reach == Reach::everywhere) {
    arrives_ = true;
    on_event_(SaveEvent::begun, step_);
  }
  poll();
}

void CheckpointWriter::write(Communicator& ranks, const checkpoint::RunDescription& description) {
  checkpoint::save(store_, ranks, description, state_.tensors(), options_.keep);
  committed_ = description.step;
}

/// Runs `action` with local steps. Returns whether they can be saved, and warns if not: training does not depend on
/// them.
template <class Action>
bool CheckpointWriter::attempt_locally(const Action& action) {
  try {
    action();
    return true;
  } catch (const Error& error) {
    const bool common = world_.size() == 1 || dynamic_cast<const CollectiveError*>(&error) != nullptr;
    if (!common || error.exit_code() != ExitCode::io) throw;
    if (world_.rank() == 0) {
      log::warn("no more local checkpoints are saved, those to {} are: {}", store_.description(), error.what());
    }
    return false;
  }
}

bool CheckpointWriter::write_locally(const checkpoint::RunDescription& description) {
  const Timer timer;
  const bool is_first = options_.local->stored_bytes() == 0;
  saves_locally_ = attempt_locally([&] { options_.local->save(description, state_.tensors(), copied_); });
  if (saves_locally_ && is_first) {
    log::info("local checkpoint {} in {}: {:.1f} MB on this node{}, written in {:.2f} s while training continues",
              description.step, options_.local->store().description(),
              static_cast<double>(options_.local->stored_bytes()) / 1e6,
              options_.local->has_copies() ? " with the copies of another" : ", the only one: there are no copies",
              timer.elapsed_s());
  }
  return saves_locally_;
}

void CheckpointWriter::copy_to_store(std::int64_t step) {
  std::unique_ptr<checkpoint::StepReader> source;
  collectively(*copiers_, [&] { source = options_.local->open_saved(step); });
  checkpoint::copy_step(store_, *copiers_, *source);
  copied_ = -1;
  checkpoint::keep(store_, *copiers_, step, options_.keep);
  committed_ = step;
  arrived_ = true;
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
  if (arrived_.exchange(false)) keep_step(SaveEvent::arrived);
}

void CheckpointWriter::wait_for_writing() {
  if (write_copy_) {
    state_.wait();
    start_writing();
  }
  if (writing_.valid()) writing_.get();
}

void CheckpointWriter::wait() {
  wait_for_writing();
  if (copying_.valid()) copying_.get();
  if (arrived_.exchange(false)) keep_step(SaveEvent::arrived);
  if (std::exchange(arrives_, false) && !failed_) finish_rewind();
}

void CheckpointWriter::keep_step(SaveEvent event) {
  own_.insert(step_);
  on_event_(event, step_);
}

void CheckpointWriter::finish_rewind() {
  if (std::exchange(abandons_, false)) remove_abandoned();
}

std::optional<Rewind> CheckpointWriter::rewind(std::int64_t newest) {
  attempt(step_, [&] { wait(); });
  const auto is_candidate = [&](const checkpoint::StepEntry& entry) {
    return entry.step <= newest && (own_.contains(entry.step) || (options_.continues && entry.step <= first_step_));
  };
  if (!checkpoint::has_checkpoint(store_, world_, is_candidate)) return {};
  const auto step = checkpoint::open_checkpoint(store_, world_, {}, checkpoint::Verification::at_opening, is_candidate);
  trainer_.finish_update();
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
  if (options_.local == nullptr) return;
  if (local_steps_ > 0) {
    log::info("{} local checkpoints: training waited {:.1f} ms for each", local_steps_,
              all_local_ms_ / static_cast<double>(local_steps_));
  }
  if (committed_ < trainer_.progress().iteration) return;
  try {
    options_.local->clear();
  } catch (const CollectiveError& error) {
    if (world_.rank() == 0) log::warn("local checkpoints stay on the nodes: {}", error.what());
  } catch (const IoError& error) {
    log::warn("local checkpoints stay on this node: {}", error.what());
  }
}

}  // namespace trireme::train
