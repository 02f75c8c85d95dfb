#pragma once

#include <cstdint>
#include <functional>

#include "src/data/dataset/gpt_samples.hpp"
#include "src/data/dataset/token_store.hpp"
#include "src/train/parallel_model.hpp"

namespace trireme::infer {

struct PerplexityResult {
  std::int64_t tokens = 0;  ///< scored tokens: all learned ones except the first
  double loss = 0;          ///< mean over the scored tokens
  double perplexity = 0;    ///< exp(loss)
};

/// Returns consecutive windows of a corpus, of the model's sequence length, without overlap; the last one may be
/// shorter. `store` must outlive them. Throws DataError for a corpus of fewer than two tokens.
data::SequentialSamples perplexity_windows(const train::ParallelModel& model, const data::TokenStore& store);

/// Scores every learned token of a corpus except the first, in its `perplexity_windows`, each once on any grid. Calls
/// `progress` with the tokens read so far and all tokens to read. Collective. Throws DataError for a corpus of fewer
/// than two tokens or without a learned one.
PerplexityResult measure_perplexity(
    train::ParallelModel& model, const data::TokenStore& store,
    const std::function<void(std::int64_t, std::int64_t)>& progress = [](std::int64_t, std::int64_t) {});

}  // namespace trireme::infer
