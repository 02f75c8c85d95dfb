#include "src/app/commands/train/train_session.hpp"

#include <cmath>

#include "io/posix/folder.hpp"
#include "src/app/job/process_limits.hpp"
#include "src/app/job/progress_bar.hpp"
#include "src/app/job/run_reports.hpp"
#include "src/app/job/stop_signal.hpp"
#include "src/app/job/terminal.hpp"
#include "src/base/log.hpp"
#include "src/base/thread_pool.hpp"
#include "src/base/timer.hpp"
#include "src/checkpoint/step_writer.hpp"
#include "src/model/stage/model_parameters.hpp"
#include "src/train/upcycling.hpp"

namespace trireme::app {
namespace {

/// Returns the approximate size of this rank's checkpoint file.
std::int64_t shard_bytes(const std::vector<checkpoint::StateTensor>& tensors) {
  std::int64_t sum = checkpoint::shard_overhead_bytes;
  for (const checkpoint::StateTensor& tensor : tensors) {
    if (tensor.written_here) sum += static_cast<std::int64_t>(tensor.data.size_bytes());
  }
  return sum;
}

/// Returns "  loss 3.2145 ▇▅▃▂▁  12345 tokens/s", the last iteration's.
std::string details_of(const train::TrainRecord& record, const Sparkline& losses) {
  const std::string curve = has_unicode_locale() ? " " + losses.text() : "";
  return fmt::format("  loss {:.4f}{}  {:.0f} tokens/s", record.lm_loss, curve, record.tokens_per_second);
}

}  // namespace

TrainSession::TrainSession(Job& job, const RunConfig& config, TrainPlan& plan)
    : job_(job),
      config_(config),
      plan_(plan),
      flight_(config.report.flight_record.empty() ? nullptr
                                                  : std::make_unique<FlightRecorder>(job, config.report.flight_record)),
      communication_(config.run.time_communication || (config.report.straggler && job.world->size() > 1)
                         ? std::make_unique<train::ExposedCommunication>(world(), job.communicators)
                         : nullptr),
      model_(*job.backend, communication_ ? communication_->world() : world(), job.grid, job.communicators, plan.model,
             config.execution_config()),
      trainer_(model_, plan.options) {
  if (communication_) trainer_.measure(*communication_);
  trainer_.observe(config.run.observations);
  if (plan_.start.reader) {
    make_state(config.checkpoint.loaded_optimizer());
  } else if (!config.checkpoint.save.empty()) {
    make_state(config.checkpoint.saved_optimizer());
  }
}

void TrainSession::make_state(train::OptimizerState optimizer) {
  using Allocation = HostCopies::Allocation;
  state_.reset();
  job_.backend->release_host_memory();
  collectively(world(), [&] {
    state_.emplace(*job_.backend, trainer_.state_tensors(optimizer),
                   config_.checkpoint.writes_behind() ? Allocation::always : Allocation::where_needed);
  });
}

void TrainSession::restore() {
  if (!plan_.start.reader) return initialise();
  const Timer timer;
  const CheckpointOptions& options = config_.checkpoint;
  const train::OptimizerState optimizer = options.loaded_optimizer();
  if (plan_.local) plan_.local->fetch(*plan_.start.reader, state_->tensors());
  checkpoint::load(
      *plan_.start.reader, world(), state_->tensors(),
      optimizer == train::OptimizerState::kept ? checkpoint::ExtraTensors::refuse : checkpoint::ExtraTensors::leave);
  state_->store();
  trainer_.restore(plan_.start.description.attributes, optimizer);
  if (options.save.empty()) {
    state_.reset();
    job_.backend->release_host_memory();
  } else if (options.saved_optimizer() != optimizer) {
    make_state(options.saved_optimizer());
  }
  log::info("continuing after iteration {}, {} samples{}", progress().iteration, progress().consumed_samples,
            optimizer == train::OptimizerState::kept ? "" : ", with new moments and loss scale");
  plan_.start = {};
  plan_.load_ms += timer.elapsed_ms();
}

void TrainSession::initialise() {
  const model::Initialisation initialisation{.method = config_.initialisation.method,
                                             .seed = config_.seed,
                                             .layers = plan_.model.layers,
                                             .scale = config_.initialisation.scale,
                                             .std = config_.initialisation.std,
                                             .threads = default_thread_count(job_.node.ranks_sharing_cores),
                                             .scales_residual = !config_.initialisation.not_scaled,
                                             .router_repeats = config_.checkpoint.upcycling_granularity};
  model::initialise(*job_.backend, model_.parameters().parameters(), initialisation);
  trainer_.start();
  if (!plan_.pretrained) return;
  load_pretrained();
  log::info("starting from the weights of iteration {}", plan_.pretrained->description.step);
  plan_.pretrained.reset();
  job_.backend->release_host_memory();
}

void TrainSession::load_pretrained() {
  const model::ModelConfig before = model::config_from(plan_.pretrained->description.attributes);
  std::vector<checkpoint::StateTensor> shared;
  const bool is_task = !plan_.model.predicts_tokens();
  for (const checkpoint::StateTensor& tensor : trainer_.state_tensors(train::OptimizerState::left_out)) {
    const bool is_adapter = model::LowRankAdapters::has(tensor.name) && !before.adapters.any();
    const bool is_head =
        is_task && (tensor.name.starts_with(fmt::format("model/{}.", model::task_head_name(plan_.model))) ||
                    (tensor.name.starts_with("model/pooler.") && !before.has_binary_head()));
    if (!is_adapter && !is_head) shared.push_back(tensor);
  }
  std::optional<train::Upcycling> upcycling;
  if (config_.checkpoint.upcycling) {
    shared = upcycling.emplace(plan_.model, config_.checkpoint.upcycling_granularity).tensors(std::move(shared));
  }
  train::HostState state(*job_.backend, std::move(shared));
  checkpoint::load(*plan_.pretrained->reader, world(), state.tensors(), checkpoint::ExtraTensors::leave);
  if (upcycling) upcycling->scale(state.tensors());
  state.store();
  trainer_.restore(trainer_.state_attributes());  // passes the weights to the model
}

bool TrainSession::has_work(const data::SampleSplits& data) const {
  const bool saves_initial_state =
      plan_.iterations == 0 && plan_.done.iteration == 0 && !config_.checkpoint.save.empty();
  const bool has_last_state_locally = plan_.local && plan_.local->starts_locally();
  return config_.run.schedule.skip_training || progress().iteration < plan_.iterations || progress().evaluation_left ||
         saves_initial_state || has_last_state_locally ||
         train::test_is_left(progress(), plan_.iterations, data, config_.schedule());
}

train::RunEnd TrainSession::run(const data::SampleSplits& data, const std::function<void()>& evaluate,
                                const std::function<std::vector<train::TaskRecord>()>& measure_tasks,
                                const TrainingSamples* samples) {
  train::RunHooks hooks;
  hooks.evaluate = evaluate;
  hooks.measure_tasks = measure_tasks;
  hooks.continuation = config_.checkpoint.continuation();
  std::optional<train::CheckpointWriter> checkpoints;
  if (plan_.store) {
    collectively(world(), [&] { check_file_limit(shard_bytes(state_->tensors()), "this rank's checkpoint file"); });
    Attributes attributes = plan_.attributes;
    attributes.put("options", config_.options_text());
    train::CheckpointWriterOptions options = config_.checkpoint.writer();
    if (const auto& rewinds = trainer_.rewinds()) {
      options.keep.rewind_distance = rewinds->distance + rewinds->iterations - 1;  // from the end of a spike
    }
    if (plan_.local) plan_.local->add_to(options, progress().iteration);
    hooks.checkpoints =
        &checkpoints.emplace(*plan_.store, world(), trainer_, *state_, std::move(attributes), plan_.blobs, options);
    if (plan_.local) plan_.local->record_attempt();
  }
  // Opened after the checkpoint folder is locked and known to be writable: only its job may change the records.
  RunReports reports(job_, config_, model_, trainer_, communication_.get(), flight_ ? &flight_->record() : nullptr,
                     plan_.load_ms);
  reports.set_hooks(hooks);
  hooks.stop_requested = [&path = config_.run.kill_switch, is_root = job_.is_root()] {
    return stop_signal_received() || (is_root && !path.empty() && io::is_there(path));
  };
  ProgressBar bar("training", "iterations", 1, progress().iteration);
  constexpr std::size_t loss_columns = 16;
  Sparkline losses(loss_columns);
  if (job_.is_root()) {
    hooks.progress = [&](const train::TrainRecord& record, std::int64_t total) {
      const bool has_loss = !record.skipped && std::isfinite(record.lm_loss);
      if (has_loss) losses.add(record.lm_loss);
      if (bar.is_due()) bar.update(record.iteration, total, details_of(record, losses));
    };
  }
  if (samples != nullptr) {
    hooks.sample = [&] {
      const std::optional<train::SampleRecord> record = samples->take(model_, world(), progress());
      if (record && job_.is_root()) reports.write(*record);
    };
  }
  train::RunSchedule schedule = config_.schedule();
  schedule.peak_tflops = reports.peak_tflops();
  try {
    const train::RunEnd end = train::run(trainer_, world(), plan_.iterations, data, schedule, hooks);
    reports.finish(end);
    return end;
  } catch (const std::exception& error) {
    reports.note_failure(error);
    throw;
  }
}

}  // namespace trireme::app
