#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/json/benchmark_json.hpp"
#include "src/app/options/options.hpp"
#include "src/data/tasks/task_text.hpp"
#include "src/data/tasks/zero_shot/benchmark_texts.hpp"
#include "src/train/parallel_model.hpp"

namespace trireme::app {

/// Options of the tasks in lm-eval's definition.
struct BenchmarkOptions {
  std::int64_t shots = 0;
  std::string shot_data;
  std::uint64_t shot_seed = 1234;  ///< lm-eval's default
  std::optional<std::int64_t> limit;
  void declare(Options& options);
  /// Returns the files of a task at `path` that the examples to show come from. Throws as benchmark_files.
  std::vector<std::string> shown_files(const data::Benchmark& benchmark, const std::string& path) const;
  /// Returns the files of a task at `path` that are read. Throws likewise.
  std::vector<std::string> files(const data::Benchmark& benchmark, const std::string& path) const;
};

/// A published task, read from its files: one set of texts, or one for each group of examples, such as MMLU's subjects.
class BenchmarkRun {
 public:
  /// Reads the examples at `path`, and those to show before them. Throws as benchmark_files, read_documents and
  /// BenchmarkTexts::add. `tokenizer` must outlive it.
  BenchmarkRun(const data::Benchmark& benchmark, const BenchmarkOptions& options, const std::string& path,
               const data::Tokenizer& tokenizer, const data::LengthLimit& limit, data::BadLines& bad_lines);

  const data::Benchmark& benchmark() const { return benchmark_; }
  /// Logs the number of texts, and those that lost their beginning.
  void log() const;

  /// Scores the texts on a model. `bootstrap_iterations` as in BenchmarkTexts::result. Collective; shows the progress
  /// on rank 0 if `shows_progress`.
  std::vector<io::MeasuredTask> measure(train::ParallelModel& model, std::int64_t bootstrap_iterations,
                                        bool shows_progress) const;

  /// Number of texts and of their scored tokens.
  std::int64_t texts() const;
  std::int64_t scored_tokens() const;

 private:
  struct Part {
    std::string name;
    std::int64_t documents = 0;  // number in the file, before the limit
    std::unique_ptr<data::BenchmarkTexts> texts;
  };
  const data::Benchmark& benchmark_;
  std::int64_t shots_;
  std::vector<Part> parts_;
};

/// Returns the groups that the measured parts of a task form: "mmlu" and its categories. Empty for other tasks.
std::vector<io::MeasuredGroup> groups_of(const std::vector<io::MeasuredTask>& parts);

}  // namespace trireme::app
