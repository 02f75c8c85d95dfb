#pragma once

#include <functional>
#include <vector>

#include "src/data/tasks/zero_shot/scored_texts.hpp"
#include "src/train/parallel_model.hpp"

namespace trireme::infer {

struct TextScores {
  std::vector<data::TextScore> scores;  ///< one per text, in their order, on every rank
  std::int64_t tokens = 0;              ///< tokens that the model has read
  std::int64_t positions = 0;           ///< positions that it has computed: the tokens and the padding
};

/// Scores texts by their next-token losses, each once, on any grid. The texts are read from the longest to the
/// shortest; padding makes those of a micro-batch equally long. Texts that score nothing are not read. The longest text
/// determines the memory of activations.
///
/// `progress` is called with the tokens read so far and all tokens to read. Collective. Throws DataError for a token
/// beyond the model's vocabulary, ShapeError for a text longer than the model's sequences.
TextScores score_texts(train::ParallelModel& model, const data::ScoredTexts& texts,
                       const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace trireme::infer
