#pragma once

#include <functional>
#include <vector>

#include "src/data/tasks/zero_shot/scored_texts.hpp"
#include "src/train/parallel_model.hpp"

namespace trireme::infer {

struct TextScores {
  std::vector<data::TextScore> scores;  ///< one per text, in order, on every rank
  std::int64_t tokens = 0;              ///< tokens read by the model
  std::int64_t positions = 0;           ///< positions computed: tokens and padding
};

/// Scores texts by their next-token losses, each once, on any grid. Runs texts from the longest to the shortest, padded
/// to equal length within a micro-batch, and skips texts without scored tokens. The longest text determines the memory
/// of activations.
///
/// Calls `progress` with the tokens read so far and all tokens to read. Collective. Throws DataError for a token
/// outside the model's vocabulary, ShapeError for a text longer than the model's sequences.
TextScores score_texts(train::ParallelModel& model, const data::ScoredTexts& texts,
                       const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace trireme::infer
