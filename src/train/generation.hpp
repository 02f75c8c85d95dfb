#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "src/train/parallel_model.hpp"

namespace trireme::train {

/// Choices about sampling the next token from the logits.
struct SamplingOptions {
  double temperature = 1;  ///< logits are divided by it; 0 takes the likeliest token
  int top_k = 0;           ///< only the k likeliest; 0: all
  double top_p = 0;        ///< only the likeliest whose probabilities reach p together; 0: all
  std::uint64_t seed = 1234;
};

/// The token chosen from `logits`, one for each token of the vocabulary, for the text position `position`: a pure
/// function of its arguments (random bits: Philox, key from the seed, counter the position).
std::int32_t choose_token(std::vector<float> logits, const SamplingOptions& options, std::int64_t position);

/// Continues `prompt` token by token, up to `max_new_tokens` or until `end_of_document` (-1: none) is chosen, which is
/// not part of the result. Keys and values of earlier positions are cached, so each token costs one position's work.
/// Where the text exceeds the model's positions, the context starts again with its latest half. `on_token` is called
/// for each new token at once, on every rank. Collective over the grid: every rank gets the same tokens, and data ranks
/// do the same work.
std::vector<std::int32_t> generate(ParallelModel& model, Communicator& world, const std::vector<std::int32_t>& prompt,
                                   std::int64_t max_new_tokens, std::int32_t end_of_document,
                                   const SamplingOptions& options,
                                   const std::function<void(std::int32_t)>& on_token = {});

}  // namespace trireme::train
