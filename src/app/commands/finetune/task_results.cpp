#include "src/app/commands/finetune/task_results.hpp"

#include "io/json/json_text.hpp"
#include "io/json/task_json.hpp"
#include "io/posix/folder.hpp"
#include "src/base/text.hpp"
#include "src/data/tasks/race.hpp"

namespace trireme::app {

std::string quoted(const std::string& text) {
  const std::string line = io::json_line("", as_utf8(text));  // {"":"..."}
  return line.substr(4, line.size() - 5);
}

namespace {

std::string json_of(const train::TaskResult::Figures& figures) {
  std::string json = fmt::format("\"total\": {}", figures.total);
  if (figures.correct) {
    json = fmt::format("\"correct\": {}, {}, \"accuracy\": {:.17g}", *figures.correct, json, figures.accuracy());
  }
  for (const auto& [metric, value] : figures.metrics) {
    if (metric != data::Metric::accuracy) json += fmt::format(", \"{}\": {:.17g}", key_of(metric), value);
  }
  if (figures.metrics.size() > 1) json += fmt::format(", \"score\": {:.17g}", figures.score);
  return json;
}

}  // namespace

std::string json_of(const train::TaskResult& result) {
  if (!result.has_labels) return fmt::format("\"total\": {}", result.all.total);
  const std::optional<data::SquadScores>& squad = result.squad;
  std::string json;
  if (!squad) {
    json = json_of(result.all);
    for (const auto& [name, figures] : result.sets) {
      json += fmt::format("{}{{\"data\": {}, {}}}", &name == &result.sets.front().first ? ", \"sets\": [" : ", ",
                          quoted(name), json_of(figures));
    }
    return json + (result.sets.empty() ? "" : "]");
  }
  json = fmt::format("\"total\": {}, \"exact\": {:.17g}, \"f1\": {:.17g}", result.all.total, squad->all.exact,
                     squad->all.f1);
  const auto append = [&](const char* name, const data::SquadScores::Group& group) {
    if (group.questions == 0) return;
    json += fmt::format(", \"{0}_total\": {1}, \"{0}_exact\": {2:.17g}, \"{0}_f1\": {3:.17g}", name, group.questions,
                        group.exact, group.f1);
  };
  append("HasAns", squad->with_answer);
  append("NoAns", squad->without_answer);
  return json;
}

void write_predictions(const TaskOptions& options, const train::TaskSplit& split, const train::TaskResult& result,
                       const std::string& suffix) {
  if (!options.n_best_file.empty()) {
    io::write_durably(options.n_best_file + suffix, io::squad_n_best_json(result.predictions));
  }
  if (options.predictions_file.empty()) return;
  std::string predictions;
  if (split.squad) {
    std::map<std::string, std::string> texts;
    for (const auto& [id, prediction] : result.predictions) texts[id] = prediction.text;
    predictions = io::squad_predictions_json(texts);
  } else if (options.task.is_race()) {
    predictions = data::race_predictions(result.classes);
  } else {
    predictions = data::glue_predictions(*options.task.glue(), split.ids, result.classes, result.values);
  }
  io::write_durably(options.predictions_file + suffix, predictions);
}

}  // namespace trireme::app
