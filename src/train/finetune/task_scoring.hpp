#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/data/dataset/sample_source.hpp"
#include "src/data/tasks/squad_answers.hpp"
#include "src/train/finetune/finetune_task.hpp"
#include "src/train/parallel_model.hpp"

namespace trireme::train {

/// Scores of a task's samples, the same on every rank.
struct TaskScores {
  std::int64_t columns = 0;    ///< classes or choices of a label; for spans, first positions, then last ones
  std::vector<double> scores;  ///< logits [labels, columns], row-major; minus infinity for padding. Values: [labels, 1]
  double loss = 0;             ///< mean cross entropy, or squared error

  /// Returns whether the loss is finite and each score a number.
  bool are_finite() const;
};

/// Runs a task's model on all of `samples`, each once on any grid, without dropout, longest first. Micro-batches end
/// with their longest sample. Collective.
TaskScores score_samples(ParallelModel& model, const data::SampleSource& samples);

/// Serializes the scores for a checkpoint: `key`, which identifies their samples, and a line feed; columns int64 and
/// loss fp64; the scores fp64; all little-endian.
std::string to_bytes(const TaskScores& scores, const std::string& key);
/// Deserializes the scores of `labels` labels from the result of to_bytes; empty if its key or size differ.
std::optional<TaskScores> scores_from(std::string_view bytes, const std::string& key, std::int64_t labels);

/// Replaces each row's logits by their softmax.
void to_probabilities(TaskScores& scores);

/// Returns the column of the largest score in row `row`, the first of equal ones.
std::int64_t best_column(const TaskScores& scores, std::int64_t row);

/// Result of a model on the examples of a split.
struct TaskResult {
  /// Figures of a set of labels.
  struct Figures {
    std::int64_t total = 0;
    std::optional<std::int64_t> correct;                   ///< right classes, if there are classes
    std::vector<std::pair<data::Metric, double>> metrics;  ///< FinetuneTask::metrics; empty for SQuAD
    double score = 0;                                      ///< their mean, or SQuAD's F1 from 0 to 1

    double accuracy() const { return static_cast<double>(*correct) / static_cast<double>(total); }
  };
  Figures all;
  std::optional<data::SquadScores> squad;
  std::map<std::string, data::SquadPrediction> predictions;  ///< by question
  std::vector<std::int32_t> classes;                         ///< predicted for each label, if there are classes
  std::vector<double> values;                                ///< predicted for each label of a regression
  bool has_labels = true;                                    ///< false: predictions only, no score
  /// Figures of each of several sets (TaskSplit::sets); empty for one set.
  std::vector<std::pair<std::string, Figures>> sets;

  /// Returns "accuracy 93.75 % (150 of 160)", SQuAD's figures, or without labels "160 predictions".
  std::string text() const;
};

/// Evaluates the `scores` of the split's samples.
TaskResult measure(const FinetuneTask& task, const TaskSplit& split, const TaskScores& scores);

}  // namespace trireme::train
