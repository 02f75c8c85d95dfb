#include "src/train/run.hpp"

#include <unistd.h>

#include <cmath>

#include "src/base/log.hpp"
#include "src/base/timer.hpp"

namespace trireme::train {
namespace {

std::string duration(double seconds) {
  const auto total = static_cast<long>(seconds + 0.5);
  if (total >= 86400) return fmt::format("{} d {} h", total / 86400, total % 86400 / 3600);
  if (total >= 3600) return fmt::format("{} h {:02} min", total / 3600, total % 3600 / 60);
  if (total >= 60) return fmt::format("{} min {:02} s", total / 60, total % 60);
  return fmt::format("{} s", total);
}

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
    line += " | " + duration(left_s) + " left";
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

/// Whether any rank says yes.
bool any_rank(Communicator& world, bool mine) {
  std::int32_t flag = mine ? 1 : 0;
  ImmediateStream host;
  world.all_reduce(host, TensorView(&flag, {1}), ReduceOp::max).wait(host);
  return flag != 0;
}

bool divides(std::int64_t interval, std::int64_t iteration) { return interval > 0 && iteration % interval == 0; }

}  // namespace

RunEnd run(Trainer& trainer, Communicator& world, std::int64_t train_iterations, const data::SampleSource& train,
           const data::SampleSource* valid, const RunSchedule& schedule, const RunHooks& hooks) {
  const Timer run_timer;
  const BatchSchedule& batches = trainer.batches();
  const std::int64_t first_sample = trainer.progress().consumed_samples;
  std::int64_t saved_at = trainer.progress().iteration;
  const auto save = [&] {
    if (hooks.save && saved_at != trainer.progress().iteration) {
      hooks.save();
      saved_at = trainer.progress().iteration;
    }
  };
  const auto save_at_end = [&] {
    save();
    if (hooks.finish_saving) hooks.finish_saving();
  };

  const auto time_is_up = [&] {
    return schedule.exit_duration_minutes > 0 && run_timer.elapsed_s() > schedule.exit_duration_minutes * 60;
  };
  const auto is_signalled = [&] { return hooks.stop_requested && hooks.stop_requested(); };
  const auto stop_after = [&](std::int64_t iteration, const char* why) {
    save_at_end();
    log::info("stopping after iteration {} of {}: {}{}", iteration, train_iterations, why,
              hooks.save ? "; everything is saved, run the same command again to go on"
                         : "; nothing is saved without --save");
    return RunEnd::stopped_early;
  };
  const auto why_now = [&] { return time_is_up() ? "--exit-duration-in-mins" : "a signal asked for it"; };

  // A stop does not wait for the end of an evaluation: the run that resumes this one makes it up, on the same samples.
  // Every evaluation of a run reads samples of its own.
  const bool evaluates = valid != nullptr && schedule.eval_iterations > 0;
  const auto evaluate = [&] {
    const std::int64_t iteration = trainer.progress().iteration;
    const std::int64_t earlier = schedule.eval_interval > 0 ? (iteration - 1) / schedule.eval_interval : 0;
    const std::optional<EvaluationRecord> evaluation =
        trainer.evaluate(*valid, earlier * schedule.eval_iterations * batches.largest(), schedule.eval_iterations,
                         [&] { return any_rank(world, time_is_up() || is_signalled()); });
    if (!evaluation) return;
    if (hooks.metrics != nullptr) hooks.metrics->write(*evaluation);
    log::info("validation after {}: loss {:.4f}, perplexity {:.2f}", iteration, evaluation->valid_loss,
              evaluation->valid_ppl);
  };
  if (evaluates && trainer.progress().evaluation_left) {
    evaluate();
    if (trainer.progress().evaluation_left) return stop_after(trainer.progress().iteration, why_now());
  }

  Window window;
  while (trainer.progress().iteration < train_iterations) {
    const TrainRecord record = trainer.step(train);
    const std::int64_t iteration = record.iteration;
    if (hooks.go_on_saving) hooks.go_on_saving();
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
    if (evaluates && (last || divides(schedule.eval_interval, iteration))) evaluate();
    if (divides(schedule.save_interval, iteration)) save();
    if (trainer.progress().evaluation_left) return stop_after(iteration, why_now());
    if (last) break;

    const bool interval_is_up = divides(schedule.exit_interval, iteration);
    if (any_rank(world, interval_is_up || time_is_up() || is_signalled())) {
      return stop_after(iteration, interval_is_up ? "--exit-interval" : why_now());
    }
  }
  save_at_end();
  return RunEnd::complete;
}

}  // namespace trireme::train
