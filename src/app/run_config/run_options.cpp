#include "src/app/run_config/run_options.hpp"

#include <algorithm>

#include "io/metrics/attempt_file.hpp"
#include "src/app/run_config/device_options.hpp"
#include "src/base/text.hpp"
#include "src/data/tasks/zero_shot/benchmark.hpp"

namespace trireme::app {

std::vector<std::string> RunOptions::outputs(const std::string& suffix) const {
  std::vector<std::string> files;
  if (!metrics_file.empty()) files = {metrics_file + suffix, io::AttemptFile::beside(metrics_file + suffix)};
  if (!trace_file.empty()) files.push_back(trace_file + suffix);
  return files;
}

void RunOptions::declare_intervals(Options& options, RunKind kind) {
  options.add("log-interval", &schedule.log_interval, "N", "Iterations between lines of the log.", at_least(1));
  if (kind == RunKind::task) return;
  options.add("eval-interval", &schedule.eval_interval, "N", "Iterations between evaluations.", at_least(1));
  options.add("eval-iters", &schedule.eval_iterations, "N", "Global batches per evaluation; 0: no evaluation.",
              at_least(0));
  options.add(
      "sample-prompts", &sample_prompts, "FILE",
      "Continue these prompts while training, by the run's seed, and show the texts in the log, the objects of "
      "--metrics-file and TensorBoard: lines of JSON as for generate --prompts or, by the file's name, of text.");
  options.add("sample-interval", &schedule.sample_interval, "N", "Iterations between them.", at_least(1));
  options.add("sample-tokens", &sample_tokens, "N", "Maximum number of tokens to add to a prompt.", at_least(1));
  options.add("sample-temperature", &sample_temperature, "X", "Divides the logits; 0: always the likeliest token.",
              at_least(0));
  options.add(
      "eval-tasks", &tasks.names, "NAME,...",
      "Measure these tasks of trireme eval in lm-eval's definition while training: log, metrics and TensorBoard "
      "show their figures.");
  options.add("eval-tasks-path", &tasks.path, "DIR", "Their data, as eval's --data-path.");
  options.add("eval-tasks-interval", &schedule.tasks_interval, "N",
              "Iterations between measurements of tasks; they are also measured at the end.", at_least(1));
  options.add("eval-tasks-num-fewshot", &tasks.shots, "N", "Examples shown before each question.", at_least(0));
  options.add("eval-tasks-limit", &tasks.limit, "N", "Only the first N examples of each task.", countable());
  options.add_flag("skip-train", &schedule.skip_training,
                   "Only evaluate the checkpoint of --load, or else the initial weights, on validation and test; train "
                   "and save nothing.");
}

void RunOptions::declare(Options& options) {
  options.add("exit-interval", &schedule.exit_interval, "N",
              "Save and stop after an iteration divisible by N, with exit code 75, or 0 without --save.", at_least(1));
  options.add("exit-duration-in-mins", &schedule.exit_duration_minutes, "X",
              "Save and stop after this time, with exit code 75, or 0 without --save.", at_least(0));
  options.add("kill-switch-path", &kill_switch, "FILE",
              "Save and stop, with exit code 75, at the end of the first iteration that finds this file. Rank 0 looks "
              "for it.");
  options.add(
      "check-weight-hash-across-dp-replicas-interval", &schedule.replica_check_interval, "N",
      "After iterations divisible by N compare hashes of the weights across all ranks that hold replicas, and without "
      "a distributed optimizer also of master weights and moments. A difference ends the run with exit code 9 and "
      "names tensor, ranks and hosts.",
      at_least(1));
  options.add(
      "metrics-file", &metrics_file, "FILE",
      "Append one JSON object per iteration, and record the run's attempts in FILE.lives: see trireme report. FLOPs, "
      "there and in the log, are the model's: full attention, causal or not, without recomputation. "
      "A BERT's masked-token head counts its masked tokens alone.");
  options.add_flag("time-communication", &time_communication,
                   "Add the exposed communication time to the objects of --metrics-file: milliseconds per iteration, "
                   "averaged over the ranks, in total and by group. Includes waits for late ranks.");
  options.add_flag("log-params-norm", &observations.params_norm,
                   "Add the L2 norm of all parameters that are trained to the log and the objects of --metrics-file.");
  options.add_flag("log-num-zeros-in-grad", &observations.num_zeros, "Likewise the number of zero gradients.");
  options.add_flag(
      "log-options", &log_options,
      "Start the log with every option and its value, not only the given ones. Checkpoints record them all: see "
      "trireme checkpoint inspect.");
  options.add(
      "trace-file", &trace_file, "FILE",
      "At the end write the timeline of every rank, for Perfetto or chrome://tracing. For short runs: the timeline "
      "is kept in memory.");
  options.add_flag("dry-run", &dry_run, "Check everything, log the run's configuration and memory, and exit.");
  declare_no_selftest(options, &no_selftest);
}

void RunOptions::settle(const Options& options, const DataOptions& data, const std::optional<model::ModelConfig>& model,
                        Problems& problems) {
  problems.need(options, {"sample-interval", "sample-tokens", "sample-temperature"}, !sample_prompts.empty(),
                "--sample-prompts");
  problems.expect(sample_prompts.empty() || !model || !model->is_bert(),
                  "--sample-prompts needs a model that predicts the next token, which a BERT does not");
  const bool has_others = !data.valid_path.empty() || !data.valid_set_words.empty();
  if (data.sampling == data::Sampling::sequential && !has_others && !options.given("eval-iters")) {
    schedule.eval_iterations = 0;
  }
  problems.need(options, {"eval-tasks-path"}, !tasks.names.empty(), "--eval-tasks");
  problems.need(options, {"eval-tasks-interval", "eval-tasks-num-fewshot", "eval-tasks-limit"}, !tasks.names.empty(),
                "--eval-tasks and --eval-tasks-path");
  problems.expect(tasks.names.empty() || !tasks.path.empty(), "--eval-tasks needs --eval-tasks-path");
  std::vector<const data::Benchmark*> measured;
  for (const std::string_view name : split(tasks.names, ',')) {
    const data::Benchmark* const benchmark = data::find_benchmark(name);
    problems.expect(benchmark != nullptr,
                    fmt::format("--eval-tasks {} is not a task that trireme eval measures", name));
    problems.expect(benchmark == nullptr || std::ranges::count(measured, benchmark) != 1,
                    fmt::format("--eval-tasks has {} twice: leave one out", name));
    measured.push_back(benchmark);
  }
  problems.expect(!schedule.skip_training || schedule.eval_iterations > 0,
                  "--skip-train only evaluates, and needs --eval-iters of at least 1");
}

}  // namespace trireme::app
