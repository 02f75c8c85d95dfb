#include "src/app/reporting/run_reports.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <span>

#include "src/app/options/field_names.hpp"
#include "src/base/log.hpp"
#include "src/base/machine.hpp"

namespace trireme::app {

RunReports::RunReports(Job& job, const RunConfig& config, train::ParallelModel& model, const train::Trainer& trainer,
                       const train::ExposedCommunication* communication)
    : job_(job), config_(config), model_(model), trainer_(trainer), communication_(communication) {
  const ReportOptions& options = config.report;
  collectively(*job.world, [&] {
    if (!job.speaks()) return;
    if (!config.run.metrics_file.empty()) {
      const std::string& path = config.run.metrics_file;
      metrics_ = std::make_unique<io::MetricsFile>(path, trainer.progress(), job.backend.get());
      lives_ = std::make_unique<io::LifeFile>(
          path, config.checkpoint.load.empty() ? io::LifeFile::Opening::replace : io::LifeFile::Opening::append,
          life_start());
    }
    if (!options.tensorboard.folder.empty()) {
      tensorboard_ = std::make_unique<io::TensorboardFile>(options.tensorboard, job.world->size(), *job.backend,
                                                           trainer.progress());
    }
  });
  const bool finds_straggler = options.straggler && job.world->size() > 1;
  if (options.timing_level > 0 || finds_straggler) {
    times_.emplace(options.timing_level);
    places_ = gather_text(*job.world, fmt::format("rank {} on {}", job.world->rank(), host_name()), 0);
  }
  const bool has_times = !config.run.trace_file.empty() || options.timing_level > 0;
  auto* profiled = options.profile ? dynamic_cast<ProfiledDevice*>(job.backend.get()) : nullptr;
  if (has_times || profiled != nullptr) {
    recorder_.emplace(job.backend->compute_stream(), profiled,
                      has_times ? TraceRecorder::Times::recorded : TraceRecorder::Times::none);
    if (!config.run.trace_file.empty()) trace_file_.emplace(config.run.trace_file, *job.world, *recorder_);
    model.set_trace(&*recorder_);
  }
  const std::vector<int>& ranks = options.profile_ranks;
  if (profiled != nullptr && std::ranges::find(ranks, job.world->rank()) != ranks.end()) {
    profiler_.emplace(*profiled, options.profile_start, options.profile_end, trainer.progress().iteration);
  }
  if (profiled != nullptr) {
    log::info("a profiler records iterations {} to {} on rank{} {}", options.profile_start + 1, options.profile_end,
              ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
  }
}

RunReports::~RunReports() { model_.set_trace(nullptr); }

void RunReports::set_hooks(train::RunHooks& hooks) {
  hooks.metrics = this;
  hooks.after_step = [this](const train::TrainRecord& record) { add_step(record); };
  if (times_) hooks.after_log = [this](std::int64_t iteration) { log_times(iteration); };
}

void RunReports::write(const train::TrainRecord& record) {
  if (metrics_) metrics_->write(record);
  if (tensorboard_) tensorboard_->write(record);
}

void RunReports::write(const train::EvaluationRecord& record) {
  if (metrics_) metrics_->write(record);
  if (tensorboard_) tensorboard_->write(record);
}

void RunReports::add_step(const train::TrainRecord& record) {
  std::span<const TraceSpan> spans;
  if (recorder_) {
    recorder_->resolve();
    spans = std::span(recorder_->spans()).subspan(counted_spans_);
  }
  if (profiler_) profiler_->after_step(record.iteration);
  if (times_) times_->add(spans, record.elapsed_ms, communication_ != nullptr ? communication_->own_ms() : 0);
  if (!recorder_) return;
  if (!trace_file_) recorder_->clear();
  counted_spans_ = recorder_->spans().size();
}

void RunReports::log_times(std::int64_t iteration) {
  const train::RankTimes::Report report = times_->take(*job_.world);
  if (!job_.speaks()) return;
  for (const std::string& line : train::lines_of(report, config_.report.timing_option, places_)) log::info("{}", line);
  if (config_.report.straggler && job_.world->size() > 1) {
    const train::Straggler& straggler = report.straggler;
    log::info("straggler: {} ({}): the others wait for it {:.1f} % of their time, {:.1f} of {:.1f} ms an iteration",
              places_[static_cast<std::size_t>(straggler.rank)], job_.grid.describe(straggler.rank),
              100 * straggler.share(), straggler.delay_ms, straggler.iteration_ms);
  }
  if (tensorboard_ && config_.report.tensorboard.timers) tensorboard_->write(iteration, report);
}

io::RunWork RunReports::work() const {
  const std::int64_t samples = trainer_.progress().consumed_samples, s = model_.execution().sequence_length;
  return {.iteration = trainer_.progress().iteration,
          .flops = model::model_flops(model_.config(), samples, s),
          .tokens = static_cast<double>(samples * s)};
}

void RunReports::set_hooks(train::CheckpointWriterOptions& options) {
  if (!config_.report.progress && config_.run.metrics_file.empty()) return;
  collectively(*job_.world, [&] {
    if (!job_.speaks() || !config_.report.progress) return;
    progress_ = std::make_unique<io::ProgressFile>(config_.checkpoint.save, job_.world->size(), work());
  });
  options.on_event = [this](train::SaveEvent event, std::int64_t step) { note_checkpoint(event, step); };
}

void RunReports::note_checkpoint(train::SaveEvent event, std::int64_t step) {
  if (lives_ && event != train::SaveEvent::begun) lives_->note_save({std::time(nullptr), step});
  if (!progress_) return;
  if (event == train::SaveEvent::arrived) {
    progress_->add_arrival(step);
  } else {
    progress_->add_checkpoint(work(), event == train::SaveEvent::begun);
  }
}

std::optional<train::DevicePeak> RunReports::device_peak() const {
  if (config_.report.peak) return config_.report.peak;
  const DType dtype = config_.precision.dtype;
  const bool is_known = !job_.backend->memory_is_host() && (dtype == DType::bf16 || dtype == DType::fp16);
  return is_known ? train::find_peak(job_.backend->description()) : std::nullopt;
}

double RunReports::peak_tflops() const {
  if (!config_.report.peak && !config_.report.throughput) return 0;
  const std::optional<train::DevicePeak> peak = device_peak();
  if (!peak) {
    log::info("no MFU in the log: no peak is known for {} in {}; --mfu-peak gives one", job_.backend->description(),
              name_of(config_.precision.dtype));
    return 0;
  }
  log::info("MFU: the share of {:g} TFLOP/s, the dense 16-bit peak of {}; recomputation is no useful work",
            peak->tflops, peak->name);
  return peak->tflops;
}

report::LifeStart RunReports::life_start() const {
  const char* slurm_job = std::getenv("SLURM_JOB_ID");
  const parallel::ProcessGrid& grid = job_.grid;
  const std::optional<train::DevicePeak> peak = device_peak();
  const bool goes_on = !config_.checkpoint.load.empty();  // otherwise the file is of an older run
  return {.time = std::time(nullptr),
          .job = slurm_job == nullptr ? "" : slurm_job,
          .host = host_name(),
          .version = version(),
          .device = fmt::format("{}, {}", job_.backend->name(), job_.backend->description()),
          .ranks = grid.world_size(),
          .axes = {{"tensor", grid.tensor_size()},
                   {"pipeline", grid.pipeline_size()},
                   {"context", grid.context_size()},
                   {"data", grid.data_size()}},
          .parameters = model::parameter_count(model_.config()),
          .peak_tflops = peak ? peak->tflops : 0,
          .iteration = trainer_.progress().iteration,
          .lost_iterations = goes_on ? metrics_->cut().lost_iterations : 0,
          .lost_ms = goes_on ? metrics_->cut().lost_ms : 0,
          .options = config_.option_values};
}

void RunReports::note_end(int exit_code, const std::string& reason) {
  if (lives_) lives_->note_end({std::time(nullptr), trainer_.progress().iteration, exit_code, reason});
}

void RunReports::note_failure(const std::exception& error) noexcept {
  try {
    const auto* known = dynamic_cast<const Error*>(&error);
    note_end(static_cast<int>(known != nullptr ? known->exit_code() : ExitCode::environment), with_flags(error.what()));
  } catch (const std::exception&) {
    // The error itself is reported by the program.
  }
}

void RunReports::finish(train::RunEnd end) {
  collectively(*job_.world, [&] {
    note_end(static_cast<int>(end == train::RunEnd::complete ? ExitCode::success : ExitCode::stopped_early), "");
  });
  if (!trace_file_) return;
  const double error_us = trace_file_->write(job_.grid.describe(job_.world->rank()));
  log::info("{}: times of different ranks compare within {:.0f} us", config_.run.trace_file, error_us);
}

}  // namespace trireme::app
