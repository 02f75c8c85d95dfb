#include "src/train/run.hpp"

#include <algorithm>
#include <memory>

#include "src/base/log.hpp"
#include "src/base/timer.hpp"
#include "src/comm/host_collectives.hpp"

namespace trireme::train {
namespace {

std::string text_of(Skip reason) {
  return reason == Skip::requested ? "iteration skipped (<iterations_to_skip>)"
         : reason == Skip::spiky   ? "spiky loss, update skipped"
                                   : "loss or gradient not finite, update skipped";
}

/// Means over the iterations since the last line of the log.
class Window {
 public:
  void add(const TrainRecord& record) {
    iterations_ += 1;
    elapsed_ms_ += record.elapsed_ms;
    tokens_ += record.tokens_per_second * record.elapsed_ms;  // thousandths
    flops_ += record.tflops_per_rank * record.elapsed_ms;
    if (record.sop_loss) sop_loss_ = sop_loss_.value_or(0) + (record.skipped ? 0 : *record.sop_loss);
    if (record.mtp_loss) mtp_loss_ = mtp_loss_.value_or(0) + (record.skipped ? 0 : *record.mtp_loss);
    if (record.skipped) {
      skipped_ += 1;
    } else {
      loss_ += record.lm_loss;
    }
  }

  /// `next_batch` is the size of the next batch if batches change, otherwise 0; `peak_tflops` as in RunSchedule.
  /// `local_ms` is the wait for local checkpoints, if there are any.
  void print(const TrainRecord& last, std::int64_t train_iterations, double left_s, bool dynamic_scale,
             std::int64_t next_batch, double peak_tflops, std::optional<double> local_ms) const {
    const double per_iteration_ms = elapsed_ms_ / iterations_;
    const int good = iterations_ - skipped_;
    const auto mean = [&](double sum) { return good > 0 ? fmt::format("{:.4f}", sum / good) : "-"; };
    std::string line = fmt::format(
        "{:>{}}/{} | {} | {} | lr {:.3e} | {:.1f} ms | {:.0f} tokens/s | {:.3f} TFLOP/s a rank", last.iteration,
        std::to_string(train_iterations).size(), train_iterations,
        sop_loss_ ? fmt::format("lm loss {} | sop loss {}", mean(loss_), mean(*sop_loss_)) : "loss " + mean(loss_),
        last.skipped ? text_of(last.skip_reason) : fmt::format("grad norm {:.3f}", last.grad_norm), last.learning_rate,
        per_iteration_ms, tokens_ / elapsed_ms_, flops_ / elapsed_ms_);
    if (mtp_loss_) line += fmt::format(" | mtp loss {}", mean(*mtp_loss_));
    if (!last.experts.empty()) {
      const LayerLoad experts = summary_of(last.experts);
      if (experts.balance_loss > 0) line += fmt::format(" | balance loss {:.3f}", experts.balance_loss);
      line += fmt::format(" | router entropy {:.3f}", experts.router_entropy);
      line += fmt::format(" | largest expert load {:.2f}x in layer {}", experts.max_load, experts.layer);
      if (experts.dropped > 0) line += fmt::format(" | {:.2f} % dropped", 100 * experts.dropped);
    }
    if (last.params_norm) line += fmt::format(" | params norm {:.3f}", *last.params_norm);
    if (last.num_zeros) line += fmt::format(" | num zeros {}", *last.num_zeros);
    if (peak_tflops > 0) line += fmt::format(" | MFU {:.1f} %", 100 * flops_ / elapsed_ms_ / peak_tflops);
    if (next_batch > 0) line += fmt::format(" | next batch {}", next_batch);
    if (dynamic_scale) line += fmt::format(" | loss scale {:g}", last.loss_scale);
    if (local_ms) line += fmt::format(" | local checkpoints {:.2f} ms", *local_ms / iterations_);
    if (skipped_ > 0) line += fmt::format(" | {} skipped", skipped_);
    line += " | " + duration_text(left_s) + " left";
    log::info("{}", line);
  }

 private:
  int iterations_ = 0;
  int skipped_ = 0;
  double loss_ = 0;
  std::optional<double> sop_loss_, mtp_loss_;
  double elapsed_ms_ = 0;
  double tokens_ = 0;
  double flops_ = 0;
};

/// Reason why a run stops early. If ranks differ, the largest value applies.
enum class Stop : std::int32_t { none, interval, time, signal };

const char* text_of(Stop stop) {
  return stop == Stop::interval ? "<exit_interval>"
         : stop == Stop::time   ? "<exit_duration_in_mins>"
                                : "stopped by a signal or <kill_switch_path>";
}

Stop agreed(Communicator& world, Stop mine) {
  return static_cast<Stop>(all_reduce_number(world, static_cast<std::int32_t>(mine), ReduceOp::max));
}

bool divides(std::int64_t interval, std::int64_t iteration) { return interval > 0 && iteration % interval == 0; }

class TrainingLoop {
 public:
  TrainingLoop(Trainer& trainer, Communicator& world, std::int64_t train_iterations, const data::SampleSplits& data,
               const RunSchedule& schedule, const RunHooks& hooks)
      : trainer_(trainer),
        world_(world),
        train_iterations_(train_iterations),
        data_(data),
        schedule_(schedule),
        hooks_(hooks),
        validates_(hooks.evaluate || ((data.valid || !data.valid_sets.empty()) && schedule.eval_iterations > 0)),
        first_sample_(progress().consumed_samples) {
    const bool has_start = hooks.checkpoints == nullptr || hooks.checkpoints->store_has_start();
    if (progress().iteration > 0 && has_start) saved_ = progress();
  }

  RunEnd run() {
    // The data may end with this run.
    const std::unique_ptr<Trainer, void (*)(Trainer*)> reading(&trainer_,
                                                               [](Trainer* trainer) { trainer->end_reading(); });
    if (schedule_.skip_training) return evaluate_alone();
    if (validates_ && progress().evaluation_left) {
      validate();
      if (progress().evaluation_left) return end_early();
      measure_tasks();
    }
    // A local step of a fault before its copy was complete.
    const bool starts_locally = hooks_.checkpoints != nullptr && hooks_.checkpoints->starts_locally();
    if (starts_locally && divides(schedule_.save_interval, progress().iteration)) save();
    while (progress().iteration < train_iterations_) {
      const TrainRecord record = trainer_.step(*data_.train, is_followed(progress().iteration + 1));
      if (divides(schedule_.replica_check_interval, record.iteration)) trainer_.check_replicas();
      if (hooks_.checkpoints != nullptr) hooks_.checkpoints->poll();
      const std::int64_t iteration = record.iteration;
      const bool last = iteration == train_iterations_;
      report(record, last);
      const bool went_back = rewind_after_spike(record);
      if (validates_ && (last || divides(schedule_.eval_interval, iteration))) validate();
      if (hooks_.sample && (last || divides(schedule_.sample_interval, iteration))) timed(hooks_.sample);
      if (!progress().evaluation_left) measure_tasks();
      if (!last && (went_back || divides(schedule_.save_interval, iteration))) {
        save();
      } else if (!last && hooks_.checkpoints != nullptr && divides(schedule_.local_interval, iteration)) {
        hooks_.checkpoints->save_locally();
      }
      if (progress().evaluation_left) return end_early();
      if (last || (stop_ == Stop::none &&
                   !stop_now(divides(schedule_.exit_interval, iteration) ? Stop::interval : Stop::none))) {
        continue;
      }
      if (!trainer_.is_ahead()) return end_early();  // otherwise after the iteration that has begun
    }
    if (test_is_left(progress(), train_iterations_, data_, schedule_)) {
      if (!evaluate(data::Split::test, "", *data_.test, 0)) return end_early();
    }
    save_at_end();
    return RunEnd::complete;
  }

 private:
  const Progress& progress() const { return trainer_.progress(); }

  /// Returns whether nothing but reports comes between an iteration and the next one.
  bool is_followed(std::int64_t iteration) const {
    const auto is_due = [&](bool is_done, std::int64_t interval) { return is_done && divides(interval, iteration); };
    const bool may_go_back = trainer_.rewinds() && trainer_.spikes().is_next_spike(*trainer_.rewinds());
    return iteration < train_iterations_ && stop_ == Stop::none && !may_go_back &&
           !is_due(true, schedule_.replica_check_interval) && !is_due(validates_, schedule_.eval_interval) &&
           !is_due(static_cast<bool>(hooks_.sample), schedule_.sample_interval) &&
           !is_due(static_cast<bool>(hooks_.measure_tasks), schedule_.tasks_interval) &&
           !is_due(hooks_.checkpoints != nullptr, schedule_.save_interval) &&
           !is_due(hooks_.checkpoints != nullptr, schedule_.local_interval) && !is_due(true, schedule_.exit_interval);
  }

  void report(const TrainRecord& record, bool last) {
    window_.add(record);
    if (hooks_.metrics != nullptr) hooks_.metrics->write(record);
    if (hooks_.after_step) hooks_.after_step(record);
    if (hooks_.progress) hooks_.progress(record, train_iterations_);
    if (!last && !divides(schedule_.log_interval, record.iteration)) return;
    const BatchSchedule& batches = trainer_.batches();
    const double seconds_a_sample = timer_.elapsed_s() / static_cast<double>(record.consumed_samples - first_sample_);
    const std::int64_t samples_left = batches.samples(record.consumed_samples, train_iterations_ - record.iteration);
    window_.print(record, train_iterations_, seconds_a_sample * static_cast<double>(samples_left),
                  trainer_.dynamic_loss_scale(), batches.ramps_up() ? batches.size(record.consumed_samples) : 0,
                  schedule_.peak_tflops,
                  hooks_.checkpoints != nullptr ? hooks_.checkpoints->take_local_ms() : std::nullopt);
    window_ = {};
    if (hooks_.after_log) hooks_.after_log(record.iteration);
  }

  /// If the latest losses are a spike, goes back to a checkpoint. Returns whether it did. The losses are the same on
  /// all ranks, and so is the decision. NumericalError if there is no such checkpoint, or after too many rewinds.
  bool rewind_after_spike(const TrainRecord& record) {
    const std::optional<RewindOptions>& options = trainer_.rewinds();
    if (!options || !trainer_.spikes().is_spike(*options)) return false;
    RewindRecord done{.rewind = {},
                      .first_high = trainer_.spikes().first_high(),
                      .loss = unsigned_nan(record.loss()),
                      .before = trainer_.spikes().moments()};
    const std::string spike = fmt::format(
        "a spike of the loss from iteration {} to {}: not finite, or above the mean {:.5g} of those before by more "
        "than <spike_z_score> {:g} times their standard deviation {:.5g}; the last is {:.5g}",
        done.first_high, record.iteration, done.before.mean, options->z_score, done.before.deviation, done.loss);
    const std::int64_t newest = done.first_high - options->distance;
    TRIREME_CHECK(std::ssize(trainer_.spikes().rewinds()) < options->max_rewinds, NumericalError,
                  "{}, after {} rewinds, <max_rewinds>. Try a lower <lr>, check the data, or raise <max_rewinds>",
                  spike, options->max_rewinds);
    const std::optional<Rewind> rewind =
        hooks_.checkpoints == nullptr ? std::nullopt : hooks_.checkpoints->rewind(newest);
    TRIREME_CHECK(rewind, NumericalError,
                  "{}, and no checkpoint of this run is older by <rewind_distance> {}. Try a lower <lr>, a shorter "
                  "<save_interval>, or a shorter <rewind_distance>",
                  spike, options->distance);
    done.rewind = *rewind;
    if (world_.rank() == 0) log::warn("{}", text_of(done));
    if (hooks_.metrics != nullptr) hooks_.metrics->write(done);
    return true;
  }

  RunEnd evaluate_alone() {
    if (validates_) validate();
    if (data_.test && schedule_.eval_iterations > 0 && stop_ == Stop::none) {
      evaluate(data::Split::test, "", *data_.test, 0);
    }
    if (stop_ == Stop::none && hooks_.sample) timed(hooks_.sample);
    if (stop_ == Stop::none) measure_tasks();
    return stop_ == Stop::none ? RunEnd::complete : end_early();
  }

  /// Runs `evaluate` and reports its time.
  void timed(const std::function<void()>& evaluate) {
    const Timer timer;
    evaluate();
    if (hooks_.after_evaluation) hooks_.after_evaluation(timer.elapsed_ms());
  }

  /// Evaluates the validation split, then each validation set, on samples that no other validation of this run reads.
  void validate() {
    if (hooks_.evaluate) return timed(hooks_.evaluate);
    const std::int64_t earlier =
        schedule_.eval_interval > 0 ? std::max<std::int64_t>(progress().iteration - 1, 0) / schedule_.eval_interval : 0;
    const std::int64_t first_batch = earlier * schedule_.eval_iterations;
    if (data_.valid && !evaluate(data::Split::valid, "", *data_.valid, first_batch)) return;
    for (const data::ValidationSet& set : data_.valid_sets) {
      if (!evaluate(data::Split::valid, set.name, *set.samples, first_batch)) return;
    }
  }

  /// Returns whether the evaluation completed. A stop interrupts it: the run that resumes this one repeats it on the
  /// same samples.
  bool evaluate(data::Split split, const std::string& set, const data::SampleSource& samples,
                std::int64_t first_batch) {
    std::optional<EvaluationRecord> evaluation;
    timed([&] {
      evaluation = trainer_.evaluate(
          samples, first_batch * trainer_.batches().max_size(), schedule_.eval_iterations,
          [&] { return stop_now(Stop::none); }, split);
    });
    if (!evaluation) return false;
    evaluation->set = set;
    if (hooks_.metrics != nullptr) hooks_.metrics->write(*evaluation);
    const std::string order = evaluation->sop_loss ? fmt::format(", sop loss {:.4f}, sop accuracy {:.2f} %",
                                                                 *evaluation->sop_loss, 100 * *evaluation->sop_accuracy)
                                                   : "";
    log::info("{}{} after {}: {}loss {:.4f}, perplexity {:.2f}{}", data::name_of(split), set.empty() ? "" : " " + set,
              evaluation->iteration, evaluation->sop_loss ? "lm " : "", evaluation->loss, evaluation->perplexity,
              order);
    return true;
  }

  void measure_tasks() {
    const std::int64_t iteration = progress().iteration;
    const bool is_due =
        schedule_.skip_training || iteration == train_iterations_ || divides(schedule_.tasks_interval, iteration);
    if (!hooks_.measure_tasks || !is_due) return;
    std::vector<TaskRecord> records;
    timed([&] { records = hooks_.measure_tasks(); });
    for (TaskRecord& record : records) {
      record.iteration = iteration;
      record.consumed_samples = progress().consumed_samples;
      std::string figures;
      for (const auto& [name, value] : record.figures) figures += fmt::format(", {} {:.4f}", name, value);
      log::info("{} after {}: {}", record.task, iteration, std::string_view(figures).substr(2));
      if (hooks_.metrics != nullptr) hooks_.metrics->write(record);
    }
  }

  bool stop_now(Stop mine) {
    if (schedule_.exit_duration_minutes > 0 && timer_.elapsed_s() > schedule_.exit_duration_minutes * 60) {
      mine = Stop::time;
    }
    if (hooks_.stop_requested && hooks_.stop_requested()) mine = Stop::signal;
    stop_ = agreed(world_, mine);
    return stop_ != Stop::none;
  }

  /// Saves and reports. A planned stop of a run that saves nothing is complete, since nothing can be resumed.
  RunEnd end_early() {
    save_at_end();
    const std::string saved =
        hooks_.checkpoints == nullptr ? "nothing is saved without <save>"
        : hooks_.checkpoints->resumable()
            ? "everything is saved; " + hooks_.continuation
            : "the weights are saved without the optimizer's state: continue with <no_load_optim>";
    log::info("stopping after iteration {} of {}: {}; {}", progress().iteration, train_iterations_, text_of(stop_),
              saved);
    return hooks_.checkpoints != nullptr || stop_ == Stop::signal ? RunEnd::stopped_early : RunEnd::complete;
  }

  void save() {
    if (hooks_.checkpoints == nullptr || saved_ == progress()) return;
    hooks_.checkpoints->save();
    saved_ = progress();
  }

  void save_at_end() {
    save();
    if (hooks_.checkpoints != nullptr) hooks_.checkpoints->finish();
  }

  const Timer timer_;
  Trainer& trainer_;
  Communicator& world_;
  std::int64_t train_iterations_;
  const data::SampleSplits& data_;
  const RunSchedule& schedule_;
  const RunHooks& hooks_;
  bool validates_;
  std::int64_t first_sample_;
  std::optional<Progress> saved_;  // last saved state; initially empty, so a run of no iterations saves its start
  Stop stop_ = Stop::none;
  Window window_;
};

}  // namespace

bool test_is_left(const Progress& progress, std::int64_t train_iterations, const data::SampleSplits& data,
                  const RunSchedule& schedule) {
  return data.test && schedule.eval_iterations > 0 && progress.iteration == train_iterations &&
         progress.iteration > 0 && !progress.tested;
}

RunEnd run(Trainer& trainer, Communicator& world, std::int64_t train_iterations, const data::SampleSplits& data,
           const RunSchedule& schedule, const RunHooks& hooks) {
  return TrainingLoop(trainer, world, train_iterations, data, schedule, hooks).run();
}

}  // namespace trireme::train
