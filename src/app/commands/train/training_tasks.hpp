#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/app/commands/eval/benchmark_run.hpp"
#include "src/app/commands/train/train_plan.hpp"
#include "src/app/job/job.hpp"
#include "src/app/run_config/run_options.hpp"
#include "src/train/train_record.hpp"

namespace trireme::app {

/// Tasks in lm-eval's definition that a training run measures.
class TrainingTasks {
 public:
  /// Returns the files that the tasks read. Throws as benchmark_files.
  static std::vector<std::string> files(const RunTaskOptions& options);

  /// Reads the tasks' files with the run's tokenizer. Texts longer than `sequence_length` lose their beginning. Throws
  /// ConfigError for a model that does not predict the next token, and as BenchmarkRun. Collective.
  TrainingTasks(Job& job, const RunTaskOptions& options, const TrainPlan& plan, std::int64_t sequence_length);

  /// Measures all tasks, without the resampled standard errors; of MMLU only its groups. Collective.
  std::vector<train::TaskRecord> measure(train::ParallelModel& model) const;

 private:
  std::unique_ptr<data::Tokenizer> tokenizer_;
  std::vector<std::unique_ptr<BenchmarkRun>> runs_;
};

}  // namespace trireme::app
