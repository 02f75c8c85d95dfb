#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/data/tasks/zero_shot/benchmark_texts.hpp"

namespace trireme::io {

/// Figures of a task, as a file of results lists them.
struct MeasuredTask {
  std::string name;
  const data::Benchmark* benchmark = nullptr;
  data::BenchmarkResult result;
  std::int64_t shots = 0;
  std::int64_t documents = 0;  ///< in the file; fewer are measured with a limit
};

/// Figures of several tasks together.
struct MeasuredGroup {
  std::string name;
  std::vector<std::string> members;
  std::vector<data::BenchmarkMetric> metrics;
  std::int64_t examples = 0;
};

/// How the tasks were measured.
struct MeasuredSettings {
  std::string model, dtype;
  std::int64_t batch_size = 1, max_length = 0, bootstrap_iterations = 0;
  std::uint64_t shot_seed = 0;
  std::optional<std::int64_t> limit;
};

/// Returns the results as one JSON object in lm-eval's layout: "results" with "acc,none" and "acc_stderr,none",
/// "groups", "group_subtasks", "configs", "versions", "n-shot", "higher_is_better", "n-samples", "config", "date" and
/// "max_length". A standard error that does not exist is "N/A".
std::string benchmark_json(const std::vector<MeasuredTask>& tasks, const std::vector<MeasuredGroup>& groups,
                           const MeasuredSettings& settings);

}  // namespace trireme::io
