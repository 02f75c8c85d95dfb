#include "src/train/run.hpp"

#include <unistd.h>

#include <cmath>

#include "src/base/log.hpp"
#include "src/base/timer.hpp"

namespace trireme::train {
namespace {

/// Means over the iterations since the last line of the log.
class Window {
 public:
  void add(const TrainRecord& record) {
    iterations_ += 1;
    elapsed_ms_ += record.elapsed_ms;
    tokens_ += record.tokens_per_second * record.elapsed_ms;  // thousandths
    flops_ += record.tflops_per_rank * record.elapsed_ms;
    if (record.skipped) {
      skipped_ += 1;
    } else {
      loss_ += record.lm_loss;
    }
  }

  /// `next_batch` is the size of the batch to come where that changes, else 0.
  void print(const TrainRecord& last, std::int64_t train_iterations, double left_s, bool dynamic_scale,
             std::int64_t next_batch) const {
    const double per_iteration_ms = elapsed_ms_ / iterations_;
    const int good = iterations_ - skipped_;
    std::string line = fmt::format(
        "{:>{}}/{} | loss {} | grad norm {:.3f} | lr {:.3e} | {:.1f} ms | {:.0f} tokens/s | {:.3f} TFLOP/s a rank",
        last.iteration, std::to_string(train_iterations).size(), train_iterations,
        good > 0 ? fmt::format("{:.4f}", loss_ / good) : "-", last.grad_norm, last.learning_rate, per_iteration_ms,
        tokens_ / elapsed_ms_, flops_ / elapsed_ms_);
    if (next_batch > 0) line += fmt::format(" | next batch {}", next_batch);
    if (dynamic_scale) line += fmt::format(" | loss scale {:g}", last.loss_scale);
    if (skipped_ > 0) line += fmt::format(" | {} skipped", skipped_);
    line += " | " + duration_text(left_s) + " left";
    log::info("{}", line);
  }

 private:
  int iterations_ = 0;
  int skipped_ = 0;
  double loss_ = 0;
  double elapsed_ms_ = 0;
  double tokens_ = 0;
  double flops_ = 0;
};

/// Why a run stops early; where ranks differ, the last of these.
enum class Stop : std::int32_t { none, interval, time, signal };

const char* text_of(Stop stop) {
  return stop == Stop::interval ? "<exit_interval>"
         : stop == Stop::time   ? "<exit_duration_in_mins>"
                                : "a signal asked for it";
}

Stop agreed(Communicator& world, Stop mine) {
  auto reason = static_cast<std::int32_t>(mine);
  ImmediateStream host;
  world.all_reduce(host, TensorView(&reason, {1}), ReduceOp::max).wait(host);
  return static_cast<Stop>(reason);
}

bool divides(std::int64_t interval, std::int64_t iteration) { return interval > 0 && iteration % interval == 0; }

}  // namespace

bool test_is_left(const Progress& progress, std::int64_t train_iterations, const data::GptData& data,
                  const RunSchedule& schedule) {
  return data.test && schedule.eval_iterations > 0 && progress.iteration == train_iterations &&
         progress.iteration > 0 && !progress.tested;
}

RunEnd run(Trainer& trainer, Communicator& world, std::int64_t train_iterations, const data::GptData& data,
           const RunSchedule& schedule, const RunHooks& hooks) {
  const Timer run_timer;
  const BatchSchedule& batches = trainer.batches();
  const std::int64_t first_sample = trainer.progress().consumed_samples;
  std::optional<Progress> saved;  // a run of no iterations saves its initial state
  if (trainer.progress().iteration > 0) saved = trainer.progress();
  const auto save = [&] {
    if (hooks.checkpoints != nullptr && saved != trainer.progress()) {
      hooks.checkpoints->save();
      saved = trainer.progress();
    }
  };
  const auto save_at_end = [&] {
    save();
    if (hooks.checkpoints != nullptr) hooks.checkpoints->finish();
  };

  Stop stop = Stop::none;
  const auto stop_now = [&](Stop mine) {
    if (schedule.exit_duration_minutes > 0 && run_timer.elapsed_s() > schedule.exit_duration_minutes * 60) {
      mine = Stop::time;
    }
    if (hooks.stop_requested && hooks.stop_requested()) mine = Stop::signal;
    stop = agreed(world, mine);
    return stop != Stop::none;
  };
  // A planned stop that saves nothing leaves nothing to resume: the run is done.
  const auto end_early = [&] {
    save_at_end();
    log::info("stopping after iteration {} of {}: {}{}", trainer.progress().iteration, train_iterations, text_of(stop),
              hooks.checkpoints != nullptr ? "; everything is saved, run the same command again to go on"
                                           : "; nothing is saved without <save>");
    return hooks.checkpoints != nullptr || stop == Stop::signal ? RunEnd::stopped_early : RunEnd::complete;
  };

  // A stop does not wait for the end of an evaluation: the run that resumes this one makes it up, on the same samples.
  const auto evaluate = [&](data::Split split, const data::SampleSource& samples, std::int64_t first_batch) {
    const std::optional<EvaluationRecord> evaluation = trainer.evaluate(
        samples, first_batch * batches.largest(), schedule.eval_iterations, [&] { return stop_now(Stop::none); },
        split);
    if (!evaluation) return;
    if (hooks.metrics != nullptr) hooks.metrics->write(*evaluation);
    log::info("{} after {}: loss {:.4f}, perplexity {:.2f}", data::name_of(split), evaluation->iteration,
              evaluation->loss, evaluation->perplexity);
  };
  // Every validation of a run reads samples of its own.
  const bool validates = data.valid && schedule.eval_iterations > 0;
  const auto validate = [&] {
    const std::int64_t earlier =
        schedule.eval_interval > 0 ? (trainer.progress().iteration - 1) / schedule.eval_interval : 0;
    evaluate(data::Split::valid, *data.valid, earlier * schedule.eval_iterations);
  };
  if (validates && trainer.progress().evaluation_left) {
    validate();
    if (trainer.progress().evaluation_left) return end_early();
  }

  Window window;
  while (trainer.progress().iteration < train_iterations) {
    const TrainRecord record = trainer.step(*data.train);
    const std::int64_t iteration = record.iteration;
    if (hooks.checkpoints != nullptr) hooks.checkpoints->poll();
    const bool last = iteration == train_iterations;
    window.add(record);
    if (hooks.metrics != nullptr) hooks.metrics->write(record);
    if (hooks.progress) hooks.progress(iteration, train_iterations);
    if (last || divides(schedule.log_interval, iteration)) {
      const double seconds_a_sample =
          run_timer.elapsed_s() / static_cast<double>(record.consumed_samples - first_sample);
      const std::int64_t samples_left = batches.samples(record.consumed_samples, train_iterations - iteration);
      window.print(record, train_iterations, seconds_a_sample * static_cast<double>(samples_left),
                   trainer.dynamic_loss_scale(), batches.ramps_up() ? batches.size(record.consumed_samples) : 0);
      window = {};
    }
    if (validates && (last || divides(schedule.eval_interval, iteration))) validate();
    if (!last && divides(schedule.save_interval, iteration)) save();
    if (trainer.progress().evaluation_left) return end_early();
    if (!last && stop_now(divides(schedule.exit_interval, iteration) ? Stop::interval : Stop::none)) return end_early();
  }
  if (test_is_left(trainer.progress(), train_iterations, data, schedule)) {
    evaluate(data::Split::test, *data.test, 0);
    if (!trainer.progress().tested) return end_early();
  }
  save_at_end();
  return RunEnd::complete;
}

}  // namespace trireme::train
