#include "io/json/benchmark_json.hpp"

#include <ctime>
#include <nlohmann/json.hpp>

#include "io/json/json_text.hpp"

namespace trireme::io {
namespace {

using Json = nlohmann::ordered_json;

Json figures(const std::string& name, const std::string& alias, std::int64_t examples,
             const std::vector<data::BenchmarkMetric>& metrics) {
  Json object = {{"name", name}, {"alias", alias}, {"sample_len", examples}};
  for (const data::BenchmarkMetric& metric : metrics) {
    const std::string key(metric.name);
    object[key + ",none"] = metric.value;
    object[key + "_stderr,none"] = metric.standard_error ? Json(*metric.standard_error) : Json("N/A");
  }
  return object;
}

/// Returns the short name that lm-eval shows: a subject without "mmlu_".
std::string alias_of(const MeasuredTask& task) {
  const std::string prefix = std::string(task.benchmark->name) + "_";
  return task.name.starts_with(prefix) ? task.name.substr(prefix.size()) : task.name;
}

}  // namespace

std::string benchmark_json(const std::vector<MeasuredTask>& tasks, const std::vector<MeasuredGroup>& groups,
                           const MeasuredSettings& settings) {
  Json root, none = Json::object();
  for (const char* key :
       {"results", "groups", "group_subtasks", "configs", "versions", "n-shot", "higher_is_better", "n-samples"}) {
    root[key] = none;
  }
  for (const MeasuredGroup& group : groups) {
    root["results"][group.name] = root["groups"][group.name] =
        figures(group.name, group.name, group.examples, group.metrics);
    root["group_subtasks"][group.name] = group.members;
  }
  constexpr const char* kinds[] = {"multiple_choice", "loglikelihood", "loglikelihood_rolling"};
  for (const MeasuredTask& task : tasks) {
    const data::Benchmark& benchmark = *task.benchmark;
    root["results"][task.name] = figures(task.name, alias_of(task), task.result.examples, task.result.metrics);
    root["configs"][task.name] = {{"task", task.name},
                                  {"output_type", kinds[static_cast<int>(benchmark.kind)]},
                                  {"num_fewshot", task.shots},
                                  {"metadata", {{"version", benchmark.version}}}};
    root["versions"][task.name] = benchmark.version;
    root["n-shot"][task.name] = task.shots;
    for (const data::BenchmarkMetric& metric : task.result.metrics) {
      root["higher_is_better"][task.name][std::string(metric.name)] = metric.higher_is_better;
    }
    root["n-samples"][task.name] = {{"original", task.documents}, {"effective", task.result.examples}};
  }
  root["config"] = {{"model", "trireme"},
                    {"model_args", "load=" + settings.model},
                    {"model_dtype", settings.dtype},
                    {"batch_size", settings.batch_size},
                    {"limit", settings.limit ? Json(*settings.limit) : Json()},
                    {"bootstrap_iters", settings.bootstrap_iterations},
                    {"fewshot_seed", settings.shot_seed}};
  root["date"] = static_cast<double>(std::time(nullptr));
  root["max_length"] = settings.max_length;
  return json_dump(root, 2) + "\n";
}

}  // namespace trireme::io
