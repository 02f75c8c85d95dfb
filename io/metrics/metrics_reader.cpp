#include "io/metrics/metrics_reader.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "io/json/json_text.hpp"
#include "io/metrics/bounded_lines.hpp"
#include "src/base/check.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;
using report::Curve;
using report::Run;

/// Record of a line: an object with an iteration.
struct Record {
  json object;
  std::int64_t iteration = 0;
  bool is_update = false;  ///< otherwise an evaluation
};

std::optional<Record> record_of(std::string_view line) {
  Record record{json::parse(line, nullptr, false)};
  if (!record.object.is_object()) return {};
  const auto iteration = record.object.find("iteration");
  if (iteration == record.object.end() || !iteration->is_number_integer()) return {};
  record.iteration = iteration->get<std::int64_t>();
  record.is_update = record.object.contains("lm_loss");
  return record;
}

/// Returns a number of an object; empty if it is missing or not a number.
std::optional<double> number_of(const json& object, std::string_view key) {
  const json& value = json_member(object, key);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

std::optional<double> number_of(const Record& record, std::string_view key) { return number_of(record.object, key); }

/// Returns a text of an object; empty if it is missing or not a text.
std::string text_of(const json& object, const char* key) {
  const json& value = json_member(object, key);
  return value.is_string() ? value.get<std::string>() : "";
}

std::vector<report::ExpertLayer> expert_layers_of(const Record& record) {
  constexpr std::size_t max_layers = 1024;
  std::vector<report::ExpertLayer> layers;
  for (const json& object : json_member(record.object, "experts")) {
    const std::optional<double> number = number_of(object, "layer");
    if (!number || layers.size() == max_layers) continue;
    report::ExpertLayer& layer = layers.emplace_back();
    layer.layer = static_cast<std::int64_t>(std::clamp(*number, 0.0, 1e9));
    for (std::size_t i = 0; i < layer.values.size(); ++i) {
      layer.values[i] = number_of(object, report::layer_quantities[i].key);
    }
  }
  return layers;
}

/// Samples of a record; empty if it has none.
report::SampleSet samples_of(const Record& record) {
  constexpr std::size_t max_samples = 64, max_bytes = 20000;
  report::SampleSet set{.iteration = record.iteration, .samples = {}};
  for (const json& object : json_member(record.object, "samples")) {
    if (!object.is_object() || set.samples.size() == max_samples) continue;
    set.samples.push_back({.prompt = text_of(object, "prompt").substr(0, max_bytes),
                           .text = text_of(object, "text").substr(0, max_bytes)});
  }
  return set;
}

/// Iterations of a file, found in a first pass.
struct Survey {
  report::NewestRecords newest;
  std::optional<std::int64_t> first, last;  ///< also of evaluations
};

Survey survey_of(const std::string& path, Run& run) {
  Survey survey;
  for (BoundedLines lines(path); lines.next();) {
    const std::optional<Record> record = record_of(lines.line());
    if (!record) {
      if (run.damaged_lines++ == 0) run.first_damaged_line = lines.number();
      continue;
    }
    if (record->is_update) survey.newest.survey(record->iteration);
    survey.first = std::min(survey.first.value_or(record->iteration), record->iteration);
    survey.last = std::max(survey.last.value_or(record->iteration), record->iteration);
  }
  if (survey.newest.empty()) return survey;
  survey.newest.begin_reading();
  survey.first = survey.newest.first();
  survey.last = survey.newest.last();
  return survey;
}

class Reader {
 public:
  Reader(Run& run, Survey survey, int columns) : run_(run), survey_(std::move(survey)), columns_(columns) {}

  void add(const Record& record) {
    if (record.is_update) {
      add_update(record);
    } else if (survey_.newest.is_kept(record.iteration)) {
      add_evaluation(record);
    }
  }

 private:
  Curve new_curve() const { return {*survey_.first, *survey_.last, columns_}; }

  void add_update(const Record& record) {
    const double ms = number_of(record, "elapsed_ms").value_or(0);
    if (!survey_.newest.is_newest(record.iteration)) {
      ++run_.repeated_iterations;
      run_.repeated_ms += ms;
      return;
    }
    ++run_.iterations;
    run_.trained_ms += ms;
    run_.tokens += number_of(record, "tokens_per_second").value_or(0) * ms / 1000;
    run_.flops_per_rank += number_of(record, "tflops_per_rank").value_or(0) * ms / 1000;
    run_.consumed_samples = static_cast<std::int64_t>(
        number_of(record, "consumed_samples").value_or(static_cast<double>(run_.consumed_samples)));
    run_.expert_layers = expert_layers_of(record);
    const bool computes_nothing = json_member(record.object, "skip_requested") == true;
    for (std::size_t i = 0; i < report::quantities.size(); ++i) {
      const auto found = record.object.find(std::string(report::quantities[i].key));
      if (found == record.object.end() || (computes_nothing && !found->is_number())) continue;
      std::optional<Curve>& curve = run_.curves[i];
      if (!curve) curve = new_curve();
      curve->add(record.iteration, number_of(record, report::quantities[i].key));
      if (i == report::lm_loss && !found->is_number()) ++run_.not_finite;
    }
    if (json_member(record.object, "skipped") == true) {
      ++run_.skipped_updates;
      if (!run_.skipped) run_.skipped = new_curve();
      run_.skipped->add(record.iteration, 1.0);
    }
  }

  /// Adds a value to the curve of a set, unless there are too many.
  void add_to_set(report::ValidationCurves& sets, const std::string& set, const Record& record, std::string_view key) {
    constexpr std::size_t max_sets = 32;
    if (!record.object.contains(std::string(key)) || (!sets.contains(set) && sets.size() >= max_sets)) return;
    sets.try_emplace(set, new_curve()).first->second.add(record.iteration, number_of(record, key));
  }

  void add_evaluation(const Record& record) {
    if (report::SampleSet set = samples_of(record); !set.samples.empty()) run_.add_samples(std::move(set));
    if (const std::string task = text_of(record.object, "eval_task"); !task.empty()) {
      for (std::size_t i = 0; i < run_.tasks.size(); ++i) {
        add_to_set(run_.tasks[i], task, record, report::task_quantities[i].key);
      }
    }
    const std::string set = text_of(record.object, "valid_set");
    for (const report::Measure& measure : report::measures) {
      add_to_set(run_.*measure.validation, set, record, "valid_" + std::string(measure.key));
    }
    if (const std::optional<double> loss = number_of(record, "test_loss")) {
      run_.test = {record.iteration, *loss, number_of(record, "test_sop_loss"), number_of(record, "test_sop_accuracy")};
    }
  }

  Run& run_;
  Survey survey_;
  int columns_;
};

}  // namespace

void read_metrics(const std::string& path, int columns, Run& run) {
  struct stat status {};
  TRIREME_CHECK(::stat(path.c_str(), &status) == 0, IoError, "reading {} failed: {}", path, std::strerror(errno));
  run.metrics_path = path;
  run.last_written = status.st_mtime;
  Survey survey = survey_of(path, run);
  if (!survey.first) return;
  run.first_iteration = *survey.first;
  run.last_iteration = *survey.last;
  Reader reader(run, std::move(survey), columns);
  for (BoundedLines lines(path); lines.next();) {
    if (const std::optional<Record> record = record_of(lines.line())) reader.add(*record);
  }
}

bool looks_like_metrics(const std::string& path) {
  BoundedLines lines(path);
  for (int i = 0; i < 10 && lines.next(); ++i) {
    if (record_of(lines.line())) return true;
  }
  return false;
}

}  // namespace trireme::io
