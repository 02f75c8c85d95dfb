#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme::infer {

/// Options for sampling the next token from the logits.
struct SamplingOptions {
  double temperature = 1;         ///< logits are divided by it; 0 takes the likeliest token
  int top_k = 0;                  ///< keeps only the k likeliest; 0: all
  double top_p = 0;               ///< keeps only the likeliest whose probabilities sum to p or more; 0: all
  double min_p = 0;               ///< keeps only tokens of at least this share of the likeliest's probability; 0: all
  double repetition_penalty = 1;  ///< see penalise_repetitions; 1: none
  std::uint64_t seed = 1234;
};

/// Divides the positive logits of all tokens in `text` by `penalty` and multiplies the others by it, once per token
/// (Keskar et al. 2019, arXiv:1909.05858).
void penalise_repetitions(std::vector<double>& logits, std::span<const std::int32_t> text, double penalty);

// Logits are fp32 or fp64, one for each token of the vocabulary. Sums and probabilities are fp64.

/// Returns whether no logit is NaN or infinite.
template <class Logit>
bool all_finite(std::span<const Logit> logits);

/// Samples a token from finite `logits` for position `position` of text `text`. The temperature applies first, then
/// top-k, top-p and min-p in turn. A pure function of its arguments: the random bits are Philox with the seed as key
/// and position and text as counter. Ignores the repetition penalty.
template <class Logit>
std::int32_t choose_token(std::span<const Logit> logits, const SamplingOptions& options, std::int64_t position,
                          std::int64_t text = 0);

struct TokenProbability {
  std::int32_t token = 0;
  double log_probability = 0;  ///< logit - log(sum of exp(logits)), independent of the sampling options
};

/// Returns the log-probability of `token`, followed by those of the `count` likeliest tokens, likeliest first and ties
/// by id.
template <class Logit>
std::vector<TokenProbability> log_probabilities(std::span<const Logit> logits, std::int32_t token, std::int64_t count);

}  // namespace trireme::infer
