#include <algorithm>
#include <csignal>
#include <iterator>
#include <string>
#include <vector>

#include "src/app/commands/commands.hpp"
#include "src/app/commands/train/train_plan.hpp"
#include "src/app/commands/train/train_session.hpp"
#include "src/app/commands/train/training_tasks.hpp"
#include "src/app/job/kernel_test.hpp"
#include "src/app/job/memory_report.hpp"
#include "src/app/job/saved_model.hpp"
#include "src/app/megatron/translation.hpp"
#include "src/app/options/text_files.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"

namespace trireme::app {

namespace {

/// Takes the model's options from the checkpoint of --load, if any. Collective.
void take_checkpoint_model(const Job& job, RunConfigReader& reader) {
  const CheckpointOptions& options = reader.parsed().checkpoint;
  TRIREME_CHECK(!options.load.empty(), ConfigError, "--use-checkpoint-args needs --load");
  // The run may start from a later step, saved by another job before it releases its lock.
  OpenOptions source = options.source();
  source.logs = false;
  const OpenCheckpoint checkpoint = open_checkpoint(*job.world, options.load, source);
  if (!checkpoint.reader) {
    log::info("--use-checkpoint-args: there is no checkpoint; using the given options");
    return;
  }
  for (const std::string& line : reader.take_model(checkpoint.description.attributes)) log::info("{}", line);
}

/// Returns the files that hold the tokens of all corpora.
std::vector<std::string> corpus_files(const TrainPlan& plan) {
  std::vector<std::string> files;
  const auto add = [&](const std::vector<data::WeightedStore>& stores) {
    for (const data::WeightedStore& weighted : stores) {
      std::ranges::move(token_files(*weighted.store), std::back_inserter(files));
    }
  };
  add(plan.stores);
  for (const OtherCorpora& others : plan.other_stores) add(others.stores);
  return files;
}

}  // namespace

int train_command(const CommandLine& line) {
  Options options(line.command(),
                  "Trains a GPT-2, Llama or BERT on tokenized corpora, from initial weights or a checkpoint.");
  RunConfigReader reader(options);
  const std::optional<megatron::Translation> translation = megatron::read(line, options);
  if (!translation) return 0;
  std::signal(SIGPIPE, SIG_IGN);  // a run continues when the reader of its log is gone

  Job job(line.environment(), options, reader.parsed().parallel.grid, reader.parsed().device);
  if (reader.parsed().checkpoint.use_model) take_checkpoint_model(job, reader);
  const RunConfig& config = reader.settle(job.grid.data_size());
  collectively(*job.world, [&] {
    if (!job.is_root()) return;
    std::vector<std::string> inputs = reader.inputs();
    std::ranges::move(TrainingTasks::files(config.run.tasks), std::back_inserter(inputs));
    check_outputs(config.run.outputs(), inputs);
  });
  check_training_type(*job.backend, config.precision.dtype, config.precision.fp8);
  if (!config.run.no_selftest) test_kernels(job, config.precision.dtype, config.device, config.precision.fp8);

  translation->log();
  TrainPlan plan = make_plan(job, config);
  collectively(*job.world, [&] {
    if (job.is_root()) check_outputs(config.run.outputs(), corpus_files(plan));
  });
  log_configuration(options, job, config, plan);
  std::optional<TrainingTasks> tasks;
  if (!config.run.tasks.names.empty()) tasks.emplace(job, config.run.tasks, plan, config.batch.sequence_length.value());
  std::optional<TrainingSamples> samples;
  if (!config.run.sample_prompts.empty()) samples.emplace(job, config, plan);
  const data::SampleSplits data = make_data(*job.world, plan, config.data.cache_path);
  log_blend(job, config, plan, data);
  if (config.run.dry_run) {
    log::info(
        "dry run: everything is in order; {} would run",
        counted(
            config.run.schedule.skip_training ? 0 : std::max<std::int64_t>(plan.iterations - plan.done.iteration, 0),
            "iteration"));
    return 0;
  }

  TrainSession session(job, config, plan);
  session.restore();
  if (!session.has_work(data)) {
    log::info("nothing to do: {} of {} iterations are done", session.progress().iteration, plan.iterations);
    return 0;
  }
  std::function<std::vector<train::TaskRecord>()> measure_tasks;
  if (tasks) measure_tasks = [&] { return tasks->measure(session.model()); };
  const train::RunEnd end = session.run(data, {}, measure_tasks, samples ? &*samples : nullptr);
  log_peak_memory(job);
  return static_cast<int>(end == train::RunEnd::complete ? ExitCode::success : ExitCode::stopped_early);
}

}  // namespace trireme::app
