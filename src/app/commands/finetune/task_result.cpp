#include "src/app/commands/finetune/task_result.hpp"

#include "io/json/task_json.hpp"
#include "io/posix/folder.hpp"

namespace trireme::app {
namespace {

void measure_squad(const TaskOptions& options, const data::SquadExamples& examples, const infer::TaskScores& scores,
                   TaskResult& result) {
  const std::vector<float> logits(scores.scores.begin(), scores.scores.end());
  const auto positions = static_cast<std::size_t>(scores.columns / 2);
  std::map<std::string, std::string> texts;
  for (std::size_t i = 0; i < examples.questions().size(); ++i) {
    const data::SquadExamples::Question& question = examples.questions()[i];
    std::vector<data::SpanLogits> windows;
    for (std::int64_t w = question.first_window; w < question.first_window + question.windows; ++w) {
      const auto row = std::span(logits).subspan(static_cast<std::size_t>(w) * 2 * positions, 2 * positions);
      // The positions behind the sample are padding.
      const data::SquadWindow& window = examples.windows()[static_cast<std::size_t>(w)];
      const auto length = static_cast<std::size_t>(examples.context_position(window) + window.tokens + 1);
      windows.push_back({row.first(length), row.subspan(positions, length)});
    }
    data::SquadPrediction prediction =
        data::predict_answer(examples, static_cast<std::int64_t>(i), windows, options.prediction);
    texts[question.question->id] = prediction.text;
    result.predictions.emplace(question.question->id, std::move(prediction));
  }
  result.squad = data::score_squad(examples, texts);
  result.total = result.squad->all.questions;
  result.score = result.squad->all.f1 / 100;
}

}  // namespace

TaskResult measure(const TaskOptions& options, const TaskSplit& split, const infer::TaskScores& scores) {
  TaskResult result;
  if (split.squad) {
    measure_squad(options, *split.squad, scores, result);
    return result;
  }
  result.total = split.samples->labels();
  result.has_labels = split.has_labels;
  for (std::int64_t i = 0; i < result.total; ++i) {
    result.classes.push_back(static_cast<std::int32_t>(infer::best_column(scores, i)));
    if (split.has_labels && result.classes.back() == split.samples->label(i)) ++result.correct;
  }
  result.score = static_cast<double>(result.correct) / static_cast<double>(result.total);
  return result;
}

std::string TaskResult::text() const {
  if (!has_labels) return fmt::format("{} predictions", total);
  if (squad) return fmt::format("exact {:.2f}, F1 {:.2f} ({} questions)", squad->all.exact, squad->all.f1, total);
  return fmt::format("accuracy {:.2f} % ({} of {})", 100 * score, correct, total);
}

std::string TaskResult::json() const {
  if (!has_labels) return fmt::format("\"total\": {}", total);
  if (!squad) return fmt::format("\"correct\": {}, \"total\": {}, \"accuracy\": {:.17g}", correct, total, score);
  std::string json =
      fmt::format("\"total\": {}, \"exact\": {:.17g}, \"f1\": {:.17g}", total, squad->all.exact, squad->all.f1);
  const auto append = [&](const char* name, const data::SquadScores::Group& group) {
    if (group.questions == 0) return;
    json += fmt::format(", \"{0}_total\": {1}, \"{0}_exact\": {2:.17g}, \"{0}_f1\": {3:.17g}", name, group.questions,
                        group.exact, group.f1);
  };
  append("HasAns", squad->with_answer);
  append("NoAns", squad->without_answer);
  return json;
}

void write_predictions(const TaskOptions& options, const TaskSplit& split, const TaskResult& result,
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
  } else {
    predictions = data::glue_predictions(options.glue_task(), split.ids, result.classes);
  }
  io::write_durably(options.predictions_file + suffix, predictions);
}

}  // namespace trireme::app
