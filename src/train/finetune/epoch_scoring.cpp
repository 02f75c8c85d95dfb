#include "src/train/finetune/epoch_scoring.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "src/base/log.hpp"

namespace trireme::train {
namespace {

constexpr const char* valid_blob = "task/valid_scores";
constexpr const char* test_blob = "task/test_scores";

/// Identifies the samples of a split by its files and the options that change them.
std::string key_of(const FinetuneTask& task, const TaskSplit& split) {
  return fmt::format("{} {} {} {}", split.digest, split.samples->sequence_length(), task.doc_stride,
                     task.max_query_length);
}

}  // namespace

void BestScores::put(const FinetuneTask& task, const TaskSplit& valid_split, const TaskSplit& test_split,
                     std::map<std::string, std::string>& blobs) const {
  blobs[valid_blob] = to_bytes(valid, key_of(task, valid_split));
  blobs.erase(test_blob);
  if (test_split.samples) blobs[test_blob] = to_bytes(test, key_of(task, test_split));
}

BestScores BestScores::from(const std::map<std::string, std::string>& blobs, const FinetuneTask& task,
                            const TaskSplit& valid_split, const TaskSplit& test_split) {
  const auto read = [&](const char* name, const TaskSplit& split) -> TaskScores {
    const auto found = blobs.find(name);
    if (!split.samples || found == blobs.end()) return {};
    return scores_from(found->second, key_of(task, split), split.samples->labels()).value_or(TaskScores{});
  };
  return {read(valid_blob, valid_split), read(test_blob, test_split)};
}

void check_finite(const TaskScores& scores, const char* split) {
  TRIREME_CHECK(
      scores.are_finite(), NumericalError,
      "the model's outputs for the {} data are not finite: lower <lr>, check the pretrained model, or train in "
      "another <dtype>",
      split);
}

TaskScores mean_of(const FinetuneTask& task, std::vector<TaskScores> models) {
  // Spans of several windows of a question are compared by their logits, which probabilities in a window do not keep.
  const bool averages_probabilities = !task.is_regression() && !task.is_squad();
  TaskScores mean;
  for (TaskScores& scores : models) {
    if (averages_probabilities) to_probabilities(scores);
    if (mean.scores.empty()) {
      mean = std::move(scores);
    } else {
      std::ranges::transform(mean.scores, scores.scores, mean.scores.begin(), std::plus<>());
    }
  }
  for (double& value : mean.scores) {
    value /= static_cast<double>(models.size());
    if (averages_probabilities) value = std::log(value);
  }
  return mean;
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

EpochScoring::EpochScoring(const FinetuneTask& task, const TaskData& data, std::int64_t epoch_iterations,
                           const std::map<std::string, std::string>& start, std::map<std::string, std::string>& blobs)
    : task_(task),
      data_(data),
      epoch_iterations_(epoch_iterations),
      blobs_(blobs),
      best_(BestScores::from(start, task, data.valid, data.test)) {
  if (best_.valid.scores.empty()) return;
  best_.put(task_, data_.valid, data_.test, blobs_);
  earlier_score_ = measure(task_, data_.valid, best_.valid).all.score;
}

bool EpochScoring::evaluate(ParallelModel& model, Trainer& trainer) {
  TaskScores scores = score_samples(model, *data_.valid.samples);
  check_finite(scores, "validation");
  const TaskResult result = measure(task_, data_.valid, scores);
  const std::int64_t iteration = trainer.progress().iteration;
  // An earlier version of the program may have stored another metric.
  if (const auto earlier = std::exchange(earlier_score_, {})) trainer.replace_best_score(*earlier);
  if (best_.valid.scores.empty() && trainer.progress().best_iteration > 0) {
    log::warn(
        "the best score so far, after iteration {}, is that of other validation data: the best is chosen from here on",
        trainer.progress().best_iteration);
    trainer.forget_best_score();
  }
  const bool is_best = trainer.note_score(result.all.score);
  log::info("validation after iteration {}, epoch {:.2f}: {}, loss {:.4f}{}", iteration,
            static_cast<double>(iteration) / static_cast<double>(epoch_iterations_), result.text(), scores.loss,
            is_best ? ", the best" : "");
  if (!is_best) return false;
  best_.valid = std::move(scores);
  if (data_.test.samples) {
    best_.test = score_samples(model, *data_.test.samples);
    check_finite(best_.test, "test");
    log::info("test after iteration {}: {}{}", iteration, measure(task_, data_.test, best_.test).text(),
              data_.test.has_labels ? fmt::format(", loss {:.4f}", best_.test.loss) : "");
  }
  best_.put(task_, data_.valid, data_.test, blobs_);
  return true;
}

}  // namespace trireme::train
