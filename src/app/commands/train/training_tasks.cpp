#include "src/app/commands/train/training_tasks.hpp"

#include <algorithm>
#include <iterator>

#include "src/base/text.hpp"

namespace trireme::app {
namespace {

BenchmarkOptions shown_examples(const RunTaskOptions& options) {
  BenchmarkOptions shown;
  shown.shots = options.shots;
  shown.limit = options.limit;
  return shown;
}

}  // namespace

std::vector<std::string> TrainingTasks::files(const RunTaskOptions& options) {
  const BenchmarkOptions shown = shown_examples(options);
  std::vector<std::string> files;
  for (const std::string_view name : split(options.names, ',')) {
    std::ranges::move(shown.files(*data::find_benchmark(name), options.path), std::back_inserter(files));
  }
  return files;
}

TrainingTasks::TrainingTasks(Job& job, const RunTaskOptions& options, const TrainPlan& plan,
                             std::int64_t sequence_length) {
  TRIREME_CHECK(plan.model.causal() && plan.model.predicts_tokens(), ConfigError,
                "--eval-tasks needs a model that predicts the next token, not a BERT");
  collectively(*job.world, [&] {
    tokenizer_ =
        data::tokenizer_from_payload(plan.attributes.get<std::string>("tokenizer"), plan.blobs.at("tokenizer"));
    const BenchmarkOptions shown = shown_examples(options);
    for (const std::string_view name : split(options.names, ',')) {
      data::BadLines bad_lines;
      runs_.push_back(std::make_unique<BenchmarkRun>(*data::find_benchmark(name), shown, options.path, *tokenizer_,
                                                     data::LengthLimit{sequence_length, true}, bad_lines));
    }
  });
  for (const auto& run : runs_) {
    if (job.is_root()) run->log();
  }
}

std::vector<train::TaskRecord> TrainingTasks::measure(train::ParallelModel& model) const {
  std::vector<train::TaskRecord> records;
  const auto add = [&](const std::string& task, const std::vector<data::BenchmarkMetric>& metrics) {
    train::TaskRecord& record = records.emplace_back();
    record.task = task;
    for (const data::BenchmarkMetric& metric : metrics) {
      record.figures.emplace_back(metric.name, metric.value);
      if (metric.standard_error)
        record.figures.emplace_back(std::string(metric.name) + "_stderr", *metric.standard_error);
    }
  };
  for (const auto& run : runs_) {
    const std::vector<io::MeasuredTask> parts = run->measure(model, 0, false);
    const std::vector<io::MeasuredGroup> groups = groups_of(parts);
    for (const io::MeasuredGroup& group : groups) add(group.name, group.metrics);
    if (groups.empty()) add(parts.front().name, parts.front().result.metrics);
  }
  return records;
}

}  // namespace trireme::app
