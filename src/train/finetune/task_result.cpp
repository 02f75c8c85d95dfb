#include "src/train/finetune/task_result.hpp"

namespace trireme::train {
namespace {

void measure_squad(const FinetuneTask& task, const data::SquadExamples& examples, const TaskScores& scores,
                   TaskResult& result) {
  const std::vector<float> logits(scores.scores.begin(), scores.scores.end());
  const auto positions = static_cast<std::size_t>(scores.columns / 2);
  std::map<std::string, std::string> texts;
  for (std::size_t i = 0; i < examples.questions().size(); ++i) {
    const data::SquadExamples::Question& question = examples.questions()[i];
    std::vector<data::SpanLogits> windows;
    for (std::int64_t w = question.first_window; w < question.first_window + question.windows; ++w) {
      const auto row = std::span(logits).subspan(static_cast<std::size_t>(w) * 2 * positions, 2 * positions);
      // The positions after the sample are padding.
      const data::SquadWindow& window = examples.windows()[static_cast<std::size_t>(w)];
      const auto length = static_cast<std::size_t>(examples.context_position(window) + window.tokens + 1);
      windows.push_back({row.first(length), row.subspan(positions, length)});
    }
    data::SquadPrediction prediction =
        data::predict_answer(examples, static_cast<std::int64_t>(i), windows, task.prediction);
    texts[question.question->id] = prediction.text;
    result.predictions.emplace(question.question->id, std::move(prediction));
  }
  result.squad = data::score_squad(examples, texts);
  result.total = result.squad->all.questions;
  result.score = result.squad->all.f1 / 100;
}

}  // namespace

TaskResult measure(const FinetuneTask& task, const TaskSplit& split, const TaskScores& scores) {
  TaskResult result;
  if (split.squad) {
    measure_squad(task, *split.squad, scores, result);
    return result;
  }
  result.total = split.samples->labels();
  result.has_labels = split.has_labels;
  for (std::int64_t i = 0; i < result.total; ++i) {
    result.classes.push_back(static_cast<std::int32_t>(best_column(scores, i)));
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

}  // namespace trireme::train
