#include "src/app/reporting/run_reports.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <span>

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
      metrics_ = std::make_unique<io::MetricsFile>(config.run.metrics_file, trainer.progress());
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
  if (!config_.report.progress) return;
  collectively(*job_.world, [&] {
    if (!job_.speaks()) return;
    progress_ = std::make_unique<io::ProgressFile>(config_.checkpoint.save, job_.world->size(), work());
  });
  options.on_event = [this](train::SaveEvent event, std::int64_t step) { note_checkpoint(event, step); };
}

void RunReports::note_checkpoint(train::SaveEvent event, std::int64_t step) {
  if (!progress_) return;
  if (event == train::SaveEvent::arrived) {
    progress_->add_arrival(step);
  } else {
    progress_->add_checkpoint(work(), event == train::SaveEvent::begun);
  }
}

double RunReports::peak_tflops() const {
  const ReportOptions& options = config_.report;
  std::optional<train::DevicePeak> peak = options.peak;
  if (!peak && !options.throughput) return 0;
  const DType dtype = config_.precision.dtype;
  const bool is_default = !peak && !job_.backend->memory_is_host() && (dtype == DType::bf16 || dtype == DType::fp16);
  if (is_default) peak = train::find_peak(job_.backend->description());
  if (!peak) {
    log::info("no MFU in the log: no peak is known for {} in {}; --mfu-peak gives one", job_.backend->description(),
              name_of(dtype));
    return 0;
  }
  log::info("MFU: the share of {:g} TFLOP/s, the dense 16-bit peak of {}; recomputation is no useful work",
            peak->tflops, peak->name);
  return peak->tflops;
}

void RunReports::finish() {
  if (!trace_file_) return;
  const double error_us = trace_file_->write(job_.grid.describe(job_.world->rank()));
  log::info("{}: times of different ranks compare within {:.0f} us", config_.run.trace_file, error_us);
}

}  // namespace trireme::app
