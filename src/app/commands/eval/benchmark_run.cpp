#include "src/app/commands/eval/benchmark_run.hpp"

#include <algorithm>
#include <iterator>
#include <map>

#include "src/app/commands/eval/benchmark_files.hpp"
#include "src/app/commands/eval/task_file.hpp"
#include "src/app/commands/eval/token_progress.hpp"
#include "src/base/text.hpp"

namespace trireme::app {

using data::TaskDocument;

void BenchmarkOptions::declare(Options& options) {
  options.section("Tasks in lm-eval's definition");
  options.add("num-fewshot", &shots, "N",
              "Show N examples with their answers before each question, drawn as lm-eval draws them.", at_least(0));
  options.add("fewshot-data", &shot_data, "FILE",
              "Examples to show; by default the training data in the folder of --data-path, MMLU's dev, or for LAMBADA "
              "what lm-eval takes: the validation data, for lambada_openai the test data.");
  options.add("fewshot-seed", &shot_seed, "N", "Seed of the draws of each task.");
  options.add("limit", &limit, "N", "Only the first N examples of each task.", countable());
}

std::vector<std::string> BenchmarkOptions::shown_files(const data::Benchmark& benchmark,
                                                       const std::string& path) const {
  return benchmark_files(benchmark, shot_data.empty() ? path : shot_data, benchmark.shot_split);
}

std::vector<std::string> BenchmarkOptions::files(const data::Benchmark& benchmark, const std::string& path) const {
  std::vector<std::string> read = benchmark_files(benchmark, path, benchmark.split);
  const bool shows = shots > 0 && benchmark.kind != data::BenchmarkKind::pages;
  if (shows) std::ranges::move(shown_files(benchmark, path), std::back_inserter(read));
  return read;
}

namespace {

/// Divides documents by a field; one group under "" if they lack it.
std::map<std::string, std::vector<TaskDocument>> grouped(std::vector<TaskDocument> documents, std::string_view field) {
  std::map<std::string, std::vector<TaskDocument>> groups;
  for (TaskDocument& document : documents) {
    const bool has_group = !field.empty() && !document.found(field).empty();
    groups[has_group ? document.text(field) : ""].push_back(std::move(document));
  }
  return groups;
}

}  // namespace

BenchmarkRun::BenchmarkRun(const data::Benchmark& benchmark, const BenchmarkOptions& options, const std::string& path,
                           const data::Tokenizer& tokenizer, const data::LengthLimit& limit, data::BadLines& bad_lines)
    : benchmark_(benchmark), shots_(benchmark.kind == data::BenchmarkKind::pages ? 0 : options.shots) {
  TRIREME_CHECK(shots_ == options.shots, ConfigError, "--num-fewshot {}: {} has no questions to show examples before",
                options.shots, benchmark.name);
  auto groups = grouped(read_documents(benchmark, benchmark_files(benchmark, path, benchmark.split), bad_lines),
                        benchmark.group_field);
  std::map<std::string, std::vector<TaskDocument>> pools;
  if (shots_ > 0) {
    const bool is_same = options.shot_data.empty() && benchmark.shot_split == benchmark.split;
    const std::vector<std::string> files = options.shown_files(benchmark, path);
    TRIREME_CHECK(is_same || files != std::vector{path}, ConfigError,
                  "--num-fewshot {} needs {} data of {} to show, and --data-path {} is the evaluated file. Give "
                  "--fewshot-data, or a folder with both",
                  shots_, benchmark.shot_split, benchmark.name, path);
    pools = grouped(read_documents(benchmark, files, bad_lines), benchmark.group_field);
  }
  for (const auto& [group, documents] : groups) {
    Part part{group.empty() ? std::string(benchmark.name) : fmt::format("{}_{}", benchmark.name, group),
              std::ssize(documents), std::make_unique<data::BenchmarkTexts>(benchmark, tokenizer, limit)};
    data::Shots shots(benchmark, pools[group], shots_, options.shot_seed);
    for (const TaskDocument& document : documents) {
      if (part.texts->size() == options.limit) break;
      bad_lines.attempt([&] {
        const std::string before = shots.before(document);
        located(document.where, [&] { part.texts->add(document, before); });
      });
    }
    if (part.texts->size() > 0) parts_.push_back(std::move(part));
  }
  TRIREME_CHECK(!parts_.empty(), DataError, "{} has no example{}", path,
                bad_lines.count() > 0 ? fmt::format(" besides its {} bad lines, the first: {}", bad_lines.count(),
                                                    bad_lines.messages().front())
                                      : "");
}

std::int64_t BenchmarkRun::texts() const {
  std::int64_t sum = 0;
  for (const Part& part : parts_) sum += part.texts->texts().size();
  return sum;
}

std::int64_t BenchmarkRun::scored_tokens() const {
  std::int64_t sum = 0;
  for (const Part& part : parts_) sum += part.texts->texts().scored();
  return sum;
}

void BenchmarkRun::log() const {
  std::int64_t examples = 0, truncated = 0;
  for (const Part& part : parts_) {
    examples += part.texts->size();
    truncated += part.texts->truncated();
  }
  log::info("{}: {}, {}, {}; {} shown before each", benchmark_.name, counted(examples, "example"),
            counted(texts(), "text"), counted(scored_tokens(), "scored token"), counted(shots_, "example"));
  if (truncated > 0) {
    log::warn("{}: {} texts are longer than the model's sequences and lost their beginning, as in lm-eval",
              benchmark_.name, truncated);
  }
}

std::vector<io::MeasuredTask> BenchmarkRun::measure(train::ParallelModel& model, std::int64_t bootstrap_iterations,
                                                    bool shows_progress) const {
  std::vector<io::MeasuredTask> measured;
  for (const Part& part : parts_) {
    const infer::TextScores scores = scores_of(model, part.texts->texts(), shows_progress);
    measured.push_back(
        {part.name, &benchmark_, part.texts->result(scores.scores, bootstrap_iterations), shots_, part.documents});
  }
  return measured;
}

std::vector<io::MeasuredGroup> groups_of(const std::vector<io::MeasuredTask>& parts) {
  const data::Benchmark& benchmark = *parts.front().benchmark;
  if (benchmark.group_field.empty()) return {};
  std::map<std::string, io::MeasuredGroup> groups;
  std::map<std::string, std::vector<data::BenchmarkResult>> results;
  const auto add = [&](const std::string& group, const io::MeasuredTask& part) {
    groups[group].name = group;
    groups[group].members.push_back(part.name);
    results[group].push_back(part.result);
  };
  const std::string name(benchmark.name);
  for (const io::MeasuredTask& part : parts) {
    add(name, part);
    const std::string_view category =
        data::mmlu_category(std::string_view(part.name).substr(std::min(name.size() + 1, part.name.size())));
    if (!category.empty()) add(fmt::format("{}_{}", name, category), part);
  }
  std::vector<io::MeasuredGroup> list;
  for (auto& [group, measured] : groups) {
    for (const data::BenchmarkMetric& metric : results[group].front().metrics) {
      measured.metrics.push_back(data::pooled(results[group], metric.name));
    }
    for (const data::BenchmarkResult& result : results[group]) measured.examples += result.examples;
    list.push_back(std::move(measured));
  }
  return list;
}

}  // namespace trireme::app
