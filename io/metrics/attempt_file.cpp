#include "io/metrics/attempt_file.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "io/json/json_text.hpp"
#include "io/metrics/bounded_lines.hpp"
#include "src/report/time_text.hpp"

namespace trireme::io {
namespace {

constexpr std::int64_t max_iterations = std::int64_t{1} << 53;  // bounds sums of damaged records

using Json = nlohmann::ordered_json;
using report::Attempt;
using report::AttemptEnd;
using report::AttemptStart;
using report::SaveNote;
using report::SpentTime;

std::string line_of(const Json& object) { return json_dump(object) + "\n"; }

/// Returns the member `key` if it has the type of `fallback`, else `fallback`.
template <class T>
T member(const Json& object, const char* key, T fallback) {
  const auto found = object.find(key);
  if (found == object.end()) return fallback;
  if constexpr (std::is_same_v<T, std::string>) {
    return found->is_string() ? found->template get<std::string>() : fallback;
  } else if constexpr (std::is_same_v<T, bool>) {
    return found->is_boolean() ? found->template get<bool>() : fallback;
  } else if constexpr (std::is_integral_v<T>) {
    return found->is_number_integer() ? found->template get<T>() : fallback;
  } else {
    return found->is_number() ? found->template get<T>() : fallback;
  }
}

std::optional<std::int64_t> time_of(const Json& object) {
  return report::parse_time(member(object, "time", std::string()));
}

SpentTime spent_from(const Json& object) {
  return {member(object, "saving_ms", 0.0), member(object, "evaluating_ms", 0.0)};
}

AttemptStart start_from(const Json& object, std::int64_t time) {
  AttemptStart start{
      .time = time,
      .began = report::parse_time(member(object, "began", std::string())).value_or(0),
      .previous_written = report::parse_time(member(object, "previous_written", std::string())).value_or(0),
      .load_ms = member(object, "load_ms", 0.0),
      .job = member(object, "job", std::string()),
      .host = member(object, "host", std::string()),
      .version = member(object, "version", std::string()),
      .device = member(object, "device", std::string()),
      .ranks = member(object, "ranks", 0),
      .axes = {},
      .parameters = member(object, "parameters", std::int64_t{0}),
      .peak_tflops = member(object, "peak_tflops", 0.0),
      .iteration = std::clamp<std::int64_t>(member(object, "iteration", std::int64_t{0}), 0, max_iterations),
      .lost_iterations =
          std::clamp<std::int64_t>(member(object, "lost_iterations", std::int64_t{0}), 0, max_iterations),
      .lost_ms = member(object, "lost_ms", 0.0),
      .options = {}};
  if (const auto grid = object.find("grid"); grid != object.end() && grid->is_object()) {
    for (const auto& [axis, size] : grid->items()) {
      if (size.is_number_integer()) start.axes.emplace_back(axis, size.get<int>());
    }
  }
  for (const bool given : {true, false}) {
    const auto options = object.find(given ? "options" : "defaults");
    if (options == object.end() || !options->is_object()) continue;
    for (const auto& [name, value] : options->items()) {
      if (value.is_string()) start.options.push_back({name, value.get<std::string>(), given});
    }
  }
  return start;
}

}  // namespace

AttemptFile::AttemptFile(const std::string& metrics_path) : file_("<metrics_file>", beside(metrics_path)) {}

void AttemptFile::note_start(Opening opening, const AttemptStart& start) {
  Json grid = Json::object(), options = Json::object(), defaults = Json::object();
  for (const auto& [axis, size] : start.axes) grid[axis] = size;
  for (const report::OptionValue& option : start.options) {
    (option.given ? options : defaults)[option.name] = option.value;
  }
  if (opening == Opening::replace) file_.cut(0);
  // Terminates a partial line left by a killed attempt.
  if (opening == Opening::append) file_.append("\n");
  Json line{{"event", "start"}, {"time", report::utc_stamp(start.time)}, {"load_ms", start.load_ms}};
  if (start.began > 0) line["began"] = report::utc_stamp(start.began);
  if (start.previous_written > 0) line["previous_written"] = report::utc_stamp(start.previous_written);
  line.update(Json({{"job", start.job},
                    {"host", start.host},
                    {"version", start.version},
                    {"iteration", start.iteration},
                    {"lost_iterations", start.lost_iterations},
                    {"lost_ms", start.lost_ms},
                    {"ranks", start.ranks},
                    {"grid", grid},
                    {"device", start.device},
                    {"peak_tflops", start.peak_tflops},
                    {"parameters", start.parameters},
                    {"options", options},
                    {"defaults", defaults}}));
  file_.append(line_of(line));
}

void AttemptFile::note_save(const SaveNote& save) {
  file_.append(line_of({{"event", "save"},
                        {"time", report::utc_stamp(save.time)},
                        {"iteration", save.iteration},
                        {"saving_ms", save.spent.saving_ms},
                        {"evaluating_ms", save.spent.evaluating_ms}}));
}

void AttemptFile::note_rewind(const report::RewindNote& rewind) {
  file_.append(line_of({{"event", "rewind"},
                        {"time", report::utc_stamp(rewind.time)},
                        {"iteration", rewind.iteration},
                        {"to", rewind.to},
                        {"lost_ms", rewind.lost_ms}}));
}

void AttemptFile::note_end(const AttemptEnd& end) {
  file_.append(line_of({{"event", "end"},
                        {"time", report::utc_stamp(end.time)},
                        {"iteration", end.iteration},
                        {"exit_code", end.exit_code},
                        {"reason", end.reason},
                        {"saving_ms", end.spent.saving_ms},
                        {"evaluating_ms", end.spent.evaluating_ms}}));
}

std::vector<Attempt> read_attempts(const std::string& path) {
  std::vector<Attempt> attempts;
  for (BoundedLines lines(path); lines.next();) {
    const Json object = Json::parse(lines.line(), nullptr, false);
    if (!object.is_object()) continue;
    const std::optional<std::int64_t> time = time_of(object);
    if (!time) continue;
    const std::string event = member(object, "event", std::string());
    const std::int64_t iteration = member(object, "iteration", std::int64_t{0});
    if (event == "start") {
      attempts.emplace_back().start = start_from(object, *time);
    } else if (attempts.empty()) {
      continue;
    } else if (event == "save") {
      attempts.back().spent = spent_from(object);
      attempts.back().saves.push_back({*time, iteration, attempts.back().spent});
    } else if (event == "rewind") {
      attempts.back().rewinds.push_back(
          {*time, iteration, member(object, "to", std::int64_t{0}), member(object, "lost_ms", 0.0)});
    } else if (event == "end") {
      attempts.back().spent = spent_from(object);
      attempts.back().end = AttemptEnd{*time, iteration, member(object, "exit_code", 0),
                                       member(object, "reason", std::string()), attempts.back().spent};
    }
  }
  return attempts;
}

std::vector<report::JobNote> read_job_notes(const std::string& path) {
  std::vector<report::JobNote> notes;
  for (BoundedLines lines(path); lines.next();) {
    // "TIME job ID step N", and on exit "... returned STATUS"
    std::istringstream in{std::string(lines.line())};
    std::string time, job_word, step_word, returned;
    report::JobNote note;
    if (!(in >> time >> job_word >> note.job >> step_word >> note.step)) continue;
    const std::optional<std::int64_t> when = report::parse_time(time);
    if (!when || job_word != "job" || step_word != "step") continue;
    note.time = *when;
    if (int status = 0; in >> returned >> status && returned == "returned") note.status = status;
    notes.push_back(std::move(note));
  }
  return notes;
}

}  // namespace trireme::io
