#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/dataset/sample_source.hpp"
#include "src/train/parallel_model.hpp"

namespace trireme::train {

/// Scores of a task's samples, the same on every rank.
struct TaskScores {
  std::int64_t columns = 0;    ///< classes or choices of a label; of spans, positions as first and as last one
  std::vector<double> scores;  ///< logits [labels, columns], row-major; minus infinity for positions of padding
  double loss = 0;             ///< mean cross entropy
};

/// Runs a model of a task on all samples of `samples`, each once on any grid, without dropout. The longest are read
/// first, and micro-batches end with their longest sample. Collective.
TaskScores score_samples(ParallelModel& model, const data::SampleSource& samples);

/// Returns the scores as bytes, for a checkpoint: `key`, which names their samples, and a line feed; columns int64 and
/// loss fp64; the scores fp64; all little-endian.
std::string to_bytes(const TaskScores& scores, const std::string& key);
/// Returns the scores of `labels` labels of which to_bytes made `bytes`; none if these have another key or size.
std::optional<TaskScores> scores_from(std::string_view bytes, const std::string& key, std::int64_t labels);

/// Replaces each row's logits by their softmax, over `groups` equal parts of the row.
void to_probabilities(TaskScores& scores, int groups = 1);

/// Returns the column of the greatest score in row `row`, the first of equal ones.
std::int64_t best_column(const TaskScores& scores, std::int64_t row);

}  // namespace trireme::train
