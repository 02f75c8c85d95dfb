#include "src/app/job/run_reports.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <numeric>
#include <span>

#include "io/posix/folder.hpp"
#include "src/app/options/field_names.hpp"
#include "src/base/log.hpp"
#include "src/base/machine.hpp"
#include "src/model/stage/model_parameters.hpp"
#include "src/report/goodput.hpp"

namespace trireme::app {
namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

RunReports::RunReports(Job& job, const RunConfig& config, train::ParallelModel& model, const train::Trainer& trainer,
                       const train::ExposedCommunication* communication, FlightRecord* flight, double load_ms)
    : job_(job), config_(config), model_(model), trainer_(trainer), communication_(communication) {
  const ReportOptions& options = config.report;
  const bool finds_straggler = options.straggler && job.world->size() > 1;
  if (options.timing_level > 0 || finds_straggler) {
    times_.emplace(options.timing_level);
    places_ = gather_text(*job.world, fmt::format("rank {} on {}", job.world->rank(), node_name()), 0);
  }
  const bool has_times = !config.run.trace_file.empty() || options.timing_level > 0;
  auto* profiled = options.profile ? dynamic_cast<ProfiledDevice*>(job.backend.get()) : nullptr;
  RangeMarker* marker = profiled;
  if (flight != nullptr) {
    flight->pass_ranges_to(profiled);
    marker = flight;
  }
  if (has_times || marker != nullptr) {
    recorder_.emplace(job.backend->compute_stream(), marker,
                      has_times ? TraceRecorder::Times::recorded : TraceRecorder::Times::none);
    if (!config.run.trace_file.empty()) trace_file_.emplace(config.run.trace_file, *job.world, *recorder_);
  }
  const std::vector<std::int64_t>& ranks = options.profile_ranks;
  if (profiled != nullptr && std::ranges::find(ranks, job.world->rank()) != ranks.end()) {
    profiler_.emplace(*profiled, options.profile_start, options.profile_end, trainer.progress().iteration);
  }
  if (profiled != nullptr) {
    log::info("a profiler records iterations {} to {} on rank{} {}", options.profile_start + 1, options.profile_end,
              ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
  }
  collectively(*job.world, [&] {
    if (job.is_root()) open_records(load_ms);
  });
  if (recorder_) model.set_trace(&*recorder_);
}

void RunReports::open_records(double load_ms) {
  const std::string& path = config_.run.metrics_file;
  // An evaluation alone adds to the records of training. It does not count as an attempt.
  const bool trains = !config_.run.schedule.skip_training;
  train::Progress done = trainer_.progress();
  if (!trains) done = {.iteration = std::numeric_limits<std::int64_t>::max(), .tested = true};
  const CheckpointOptions& checkpoint = config_.checkpoint;
  const bool goes_on =
      !checkpoint.load.empty() && !checkpoint.starts_anew();  // otherwise the file is from an older run
  if (!path.empty()) {
    metrics_ = std::make_unique<io::MetricsFile>(path, job_.backend.get());
    if (trains) attempts_ = std::make_unique<io::AttemptFile>(path);
  }
  if (!config_.report.tensorboard.folder.empty()) {
    tensorboard_ =
        std::make_unique<io::TensorboardFile>(config_.report.tensorboard, job_.world->size(), *job_.backend, done);
  }
  if (config_.report.progress && !config_.checkpoint.save.empty()) {
    progress_ = std::make_unique<io::ProgressFile>(config_.checkpoint.save, job_.world->size(), work());
  }
  io::EarlierIterations earlier;
  if (metrics_) earlier = metrics_->begin(done);
  if (!goes_on || !trains) earlier = {};
  previous_record_s_ = earlier.last_written;
  if (attempts_ && goes_on) history_ = io::read_attempts(io::AttemptFile::beside(path));
  const bool has_earlier = !history_.empty();
  history_.emplace_back().start = attempt_start(earlier, load_ms);
  trained_ms_ = std::reduce(earlier.kept_ms.begin(), earlier.kept_ms.end());
  if (config_.precision.rewind_on_spike) {
    step_ms_ = std::move(earlier.kept_ms);
    for (const train::Rewind& rewind : trainer_.spikes().rewinds()) take_lost_ms(rewind, done.iteration);
  }
  if (has_earlier) log_goodput();
  if (!attempts_) return;
  attempt("<metrics_file>", [&] {
    attempts_->note_start(goes_on ? io::AttemptFile::Opening::append : io::AttemptFile::Opening::replace,
                          *history_.back().start);
  });
}

void RunReports::log_goodput() {
  history_.back().spent = spent();
  log::info("goodput, the time that trained: {}",
            report::text_of(report::goodput_of(history_, trained_ms_, 0, std::time(nullptr))));
}

report::SpentTime RunReports::spent() const {
  return {checkpoints_ != nullptr ? checkpoints_->blocked_ms() : 0, evaluating_ms_};
}

RunReports::~RunReports() { model_.set_trace(nullptr); }

void RunReports::set_hooks(train::RunHooks& hooks) {
  hooks.metrics = this;
  hooks.after_step = [this](const train::TrainRecord& record) { add_step(record); };
  hooks.after_evaluation = [this](double elapsed_ms) { evaluating_ms_ += elapsed_ms; };
  checkpoints_ = hooks.checkpoints;
  if (times_) hooks.after_log = [this](std::int64_t iteration) { log_times(iteration); };
  if (hooks.checkpoints == nullptr) return;
  hooks.checkpoints->observe([this](train::SaveEvent event, std::int64_t step) { note_checkpoint(event, step); });
}

template <class Record>
void RunReports::write_record(const Record& record) {
  if (metrics_) attempt("<metrics_file>", [&] { metrics_->write(record); });
  if (tensorboard_) attempt("<tensorboard_dir>", [&] { tensorboard_->write(record); });
}

void RunReports::write(const train::TrainRecord& record) {
  trained_ms_ += record.elapsed_ms;
  if (config_.precision.rewind_on_spike) step_ms_.push_back(record.elapsed_ms);
  write_record(record);
}
void RunReports::write(const train::EvaluationRecord& record) { write_record(record); }
void RunReports::write(const train::SampleRecord& record) { write_record(record); }

void RunReports::write(const train::TaskRecord& record) { write_record(record); }

double RunReports::take_lost_ms(const train::Rewind& rewind, std::int64_t iteration) {
  const std::int64_t last = std::ssize(step_ms_) - (iteration - rewind.from), first = last - (rewind.from - rewind.to);
  double lost_ms = 0;
  for (std::int64_t i = std::max<std::int64_t>(first, 0); i < last; ++i) {
    lost_ms += std::exchange(step_ms_[static_cast<std::size_t>(i)], 0);
  }
  return lost_ms;
}

void RunReports::write(const train::RewindRecord& record) {
  write_record(record);
  if (!attempts_) return;
  const double lost_ms = take_lost_ms(record.rewind, record.rewind.from);
  const report::RewindNote note{std::time(nullptr), record.rewind.from, record.rewind.to, lost_ms};
  history_.back().rewinds.push_back(note);
  attempt("<metrics_file>", [&] { attempts_->note_rewind(note); });
}

void RunReports::attempt(const char* option, const std::function<void()>& write) {
  try {
    write();
  } catch (const Error& error) {
    if (error.exit_code() != ExitCode::io) throw;
    if (!failed_.insert(option).second || !job_.is_root()) return;
    log::warn("{}; the run continues without these records", error.what());
  }
}

void RunReports::add_step(const train::TrainRecord& record) {
  if (previous_record_s_ > 0) {
    log::info("iteration {} was done {:.1f} s after the last record of the previous attempt", record.iteration,
              now_s() - previous_record_s_);
    previous_record_s_ = 0;
  }
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
  if (!job_.is_root()) return;
  for (const std::string& line : train::lines_of(report, config_.report.timing_option, places_)) log::info("{}", line);
  if (config_.report.straggler && job_.world->size() > 1) {
    const train::Straggler& straggler = report.straggler;
    log::info("straggler: {} ({}): the others wait for it {:.1f} % of their time, {:.1f} of {:.1f} ms per iteration",
              places_[static_cast<std::size_t>(straggler.rank)], job_.grid.describe(straggler.rank),
              100 * straggler.share(), straggler.delay_ms, straggler.iteration_ms);
  }
  if (!tensorboard_ || !config_.report.tensorboard.timers) return;
  attempt("<tensorboard_dir>", [&] { tensorboard_->write(iteration, report); });
}

io::RunWork RunReports::work() const {
  const std::int64_t samples = trainer_.progress().consumed_samples, s = model_.execution().sequence_length;
  return {.iteration = trainer_.progress().iteration,
          .flops = model::model_flops(model_.config(), samples, s, model_.execution().max_predictions),
          .tokens = static_cast<double>(samples * s)};
}

void RunReports::note_checkpoint(train::SaveEvent event, std::int64_t step) {
  if (attempts_ && event != train::SaveEvent::begun) {
    attempt("<metrics_file>", [&] { attempts_->note_save({std::time(nullptr), step, spent()}); });
  }
  if (!progress_) return;
  attempt("<log_progress>", [&] {
    if (event == train::SaveEvent::arrived) {
      progress_->add_arrival(step);
    } else {
      progress_->add_checkpoint(work(), event == train::SaveEvent::begun);
    }
  });
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
    log::info("no MFU in the log: the peak of {} in {} is unknown; set it with --mfu-peak", job_.backend->description(),
              name_of(config_.precision.dtype));
    return 0;
  }
  log::info("MFU: the fraction of {:g} TFLOP/s, the dense 16-bit peak of {}; recomputation is not counted",
            peak->tflops, peak->name);
  return peak->tflops;
}

report::AttemptStart RunReports::attempt_start(const io::EarlierIterations& earlier, double load_ms) const {
  const char* slurm_job = std::getenv("SLURM_JOB_ID");
  const parallel::ProcessGrid& grid = job_.grid;
  const std::optional<train::DevicePeak> peak = device_peak();
  std::vector<report::OptionValue> options = config_.option_values;
  for (report::OptionValue& option : options) {
    // A report may be made in another folder.
    if (option.name == "save") option.value = io::full_path(option.value);
  }
  return {.time = std::time(nullptr),
          .began = job_.began,
          .previous_written = static_cast<std::int64_t>(earlier.last_written),
          .load_ms = load_ms,
          .job = slurm_job == nullptr ? "" : slurm_job,
          .host = node_name(),
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
          .lost_iterations = earlier.lost,
          .lost_ms = earlier.lost_ms,
          .options = std::move(options)};
}

void RunReports::note_end(int exit_code, const std::string& reason) {
  if (!job_.is_root()) return;
  log_goodput();
  if (!attempts_) return;
  attempt("<metrics_file>", [&] {
    attempts_->note_end({std::time(nullptr), trainer_.progress().iteration, exit_code, reason, spent()});
  });
}

void RunReports::note_failure(const std::exception& error) noexcept {
  try {
    const auto* known = dynamic_cast<const Error*>(&error);
    note_end(static_cast<int>(known != nullptr ? known->exit_code() : ExitCode::environment), with_flags(error.what()));
  } catch (const std::exception&) {
    // The program reports the error itself.
  }
}

void RunReports::finish(train::RunEnd end) {
  note_end(static_cast<int>(end == train::RunEnd::complete ? ExitCode::success : ExitCode::stopped_early), "");
  if (!trace_file_) return;
  attempt("<trace_file>", [&] {
    const double error_us = trace_file_->write(job_.grid.describe(job_.world->rank()));
    log::info("{}: clocks of the ranks agree within {:.0f} us", config_.run.trace_file, error_us);
  });
}

}  // namespace trireme::app
