#include "src/app/commands/report/report_input.hpp"

#include <algorithm>
#include <filesystem>

#include "io/checkpoint/checkpoint_reader.hpp"
#include "io/checkpoint/checkpoint_store.hpp"
#include "io/metrics/attempt_file.hpp"
#include "io/metrics/metrics_reader.hpp"
#include "io/posix/folder.hpp"
#include "src/base/check.hpp"
#include "src/base/text.hpp"
#include "src/checkpoint/load.hpp"
#include "src/report/chart.hpp"

namespace trireme::app {
namespace {

namespace fs = std::filesystem;

/// Throws ConfigError if the page would overwrite `input`, one of its source files, under any name.
void check_is_no_input(const std::string& output, const std::string& input) {
  std::error_code error;  // not equal, then
  TRIREME_CHECK(!fs::equivalent(output, input, error), ConfigError,
                "--output {} is {}, an input of the page: name another file", output, input);
}

/// Returns the metrics file in a run folder: metrics.jsonl, or the only one; empty if there is none.
std::string metrics_in(const std::string& folder) {
  if (io::is_there(folder + "/metrics.jsonl")) return folder + "/metrics.jsonl";
  std::vector<std::string> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string path = entry.path().string();
    // FILE.jsonl.seed-N is one, too.
    const bool may_be = path.find(".jsonl") != std::string::npos && !path.ends_with(".lives");
    if (may_be && entry.is_regular_file() && io::looks_like_metrics(path)) found.push_back(path);
  }
  TRIREME_CHECK(!error, IoError, "reading the folder {} failed: {}", folder, error.message());
  std::ranges::sort(found);
  TRIREME_CHECK(found.size() <= 1, ConfigError, "{} has several files of metrics: name one, such as {}", folder,
                found.front());
  return found.empty() ? "" : found.front();
}

/// Adds the checkpoints of a folder, and the attributes of the newest.
void read_steps(const std::string& folder, const std::string& output, report::Run& run) {
  io::CheckpointStore store(folder);
  for (const checkpoint::StepEntry& entry : store.steps()) {
    check_is_no_input(output, fmt::format("{}/{}/{}", folder, entry.name, io::manifest_name));
    report::StoredStep step;
    step.name = entry.name;
    try {
      const std::unique_ptr<checkpoint::StepReader> reader = store.open(entry.name);
      checkpoint::check_format(*reader);
      const checkpoint::Manifest& manifest = reader->manifest();
      step.iteration = manifest.step;
      for (const checkpoint::FileEntry& file : manifest.files) step.size_bytes += file.size_bytes;
      step.files = static_cast<std::int64_t>(manifest.files.size());
      if (run.attributes.empty()) {
        for (const auto& [name, value] : manifest.attributes.texts())
          run.attributes.emplace_back(name, shortened(value));
      }
    } catch (const Error& problem) {
      step.problem = problem.what();
    }
    run.steps.push_back(std::move(step));
  }
}

/// Returns the folder of a run's checkpoints: in the run folder, the folder itself, or that of --save; empty if none is
/// found.
std::string steps_folder(const std::string& folder, const report::Run& run) {
  std::vector<std::string> candidates;
  if (!folder.empty()) candidates = {folder + "/checkpoints", folder};
  if (const report::AttemptStart* start = run.newest_start()) {
    for (const report::OptionValue& option : start->options) {
      if (option.name == "save" && fs::path(option.value).is_absolute()) candidates.push_back(option.value);
    }
  }
  for (const std::string& candidate : candidates) {
    if (io::is_folder(candidate + "/.") && !io::CheckpointStore(candidate).steps().empty()) return candidate;
  }
  return "";
}

/// Reads a run, each curve in so many columns, for the page `output`, which must not be one of its files.
report::Run read_run(const std::string& path, const std::string& output, int columns) {
  TRIREME_CHECK(io::is_there(path), IoError, "there is no {}: give a run folder, or a file of --metrics-file", path);
  const bool is_folder = io::is_folder(path + "/.");  // also by a link
  report::Run run;
  fs::path named = fs::absolute(path).lexically_normal();
  if (!named.has_filename()) named = named.parent_path();
  if (named.filename() == "metrics.jsonl")
    named = named.parent_path();  // the name is common to all runs of the batch files
  run.name = named.has_filename() ? named.filename().string() : path;
  const std::string metrics = is_folder ? metrics_in(path) : path;
  run.sources = {path, metrics, io::AttemptFile::beside(metrics), path + "/lives"};
  for (const std::string& file : run.sources) check_is_no_input(output, file);
  if (!metrics.empty()) {
    io::read_metrics(metrics, columns, run);
    run.attempts = io::read_attempts(io::AttemptFile::beside(metrics));
  }
  std::error_code unknown;
  if (is_folder && fs::is_regular_file(path + "/lives", unknown)) {
    run.attempts = report::join_attempts(std::move(run.attempts), io::read_job_notes(path + "/lives"));
  }
  if (const std::string steps = steps_folder(is_folder ? path : "", run); !steps.empty()) {
    run.sources.push_back(steps);
    read_steps(steps, output, run);
  }
  TRIREME_CHECK(
      run.last_iteration > 0 || !run.steps.empty() || !run.attempts.empty(), DataError,
      "{} has neither metrics nor checkpoints: wait for its first iteration, or give another run folder or file of "
      "--metrics-file",
      path);
  return run;
}

/// Throws ConfigError if the last run was already given, under any path or by its metrics file.
void check_is_new(const std::vector<report::Run>& runs, const std::vector<std::string>& paths) {
  const auto file_of = [&](std::size_t i) { return runs[i].metrics_path.empty() ? paths[i] : runs[i].metrics_path; };
  const std::size_t last = runs.size() - 1;
  for (std::size_t i = 0; i < last; ++i) {
    std::error_code error;  // not equal, then
    TRIREME_CHECK(!fs::equivalent(file_of(i), file_of(last), error), ConfigError, "{} {}: give each run once",
                  paths[i] == paths[last] ? paths[i] : fmt::format("{} and {}", paths[i], paths[last]),
                  paths[i] == paths[last] ? "is given twice" : "are the same run");
  }
}

/// Makes the names of runs distinct, by full paths where their last parts are equal.
void name_apart(std::vector<report::Run>& runs, const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  for (const report::Run& run : runs) names.push_back(run.name);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (std::ranges::count(names, names[i]) > 1) runs[i].name = paths[i];
  }
}

}  // namespace

std::vector<report::Run> read_runs(const std::vector<std::string>& paths, const std::string& output) {
  std::vector<report::Run> runs;
  for (const std::string& path : paths) {
    runs.push_back(read_run(path, output, report::kept_columns(paths.size())));
    check_is_new(runs, paths);
  }
  name_apart(runs, paths);
  return runs;
}

std::string stamp_of(const std::vector<std::string>& sources) {
  std::string stamp;
  for (const std::string& source : sources) {
    std::error_code missing;
    const auto time = fs::last_write_time(source, missing);
    const std::uintmax_t size = fs::file_size(source, missing);
    stamp += fmt::format("{} {};", missing ? 0 : size, time.time_since_epoch().count());
  }
  return stamp;
}

}  // namespace trireme::app
