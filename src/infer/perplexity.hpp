#pragma once

#include <cstdint>
#include <functional>

#include "src/data/dataset/gpt_samples.hpp"
#include "src/data/dataset/token_store.hpp"
#include "src/train/parallel_model.hpp"

namespace trireme::infer {

struct PerplexityResult {
  std::int64_t tokens = 0;  ///< scored tokens: all but the first
  double loss = 0;          ///< mean over the scored tokens
  double perplexity = 0;    ///< exp(loss)
};

/// Windows of a corpus for `model`: of its sequence length, one after another without overlap; the last one may end
/// early. `store` must live longer. Throws DataError for a corpus of fewer than two tokens.
data::SequentialSamples perplexity_windows(const train::ParallelModel& model, const data::TokenStore& store);

/// Scores every token of a corpus but the first, in its `perplexity_windows`. Each window is scored once, on any
/// grid. `progress` is called with the tokens scored so far and all tokens to score. Collective. Throws DataError for a
/// corpus of fewer than two tokens.
PerplexityResult measure_perplexity(
    train::ParallelModel& model, const data::TokenStore& store,
    const std::function<void(std::int64_t, std::int64_t)>& progress = [](std::int64_t, std::int64_t) {});

}  // namespace trireme::infer
