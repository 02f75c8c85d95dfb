#include "src/infer/token_sampling.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "src/base/exponentials.hpp"
#include "src/base/hash.hpp"
#include "src/base/philox.hpp"

namespace trireme::infer {
namespace {

/// Ids of a vocabulary, likeliest first and ties by id. Sorts lazily, since few of a large vocabulary are read.
template <class Logit>
class LikeliestFirst {
 public:
  explicit LikeliestFirst(std::span<const Logit> logits) : logits_(logits), order_(logits.size()) {
    std::iota(order_.begin(), order_.end(), 0);
  }

  std::int32_t operator[](std::size_t i) {
    while (i >= sorted_) {
      const std::size_t end = std::min(order_.size(), std::max(first_stretch, 8 * sorted_));
      std::partial_sort(order_.begin() + static_cast<std::ptrdiff_t>(sorted_),
                        order_.begin() + static_cast<std::ptrdiff_t>(end), order_.end(),
                        [&](std::int32_t a, std::int32_t b) {
                          const Logit x = logits_[static_cast<std::size_t>(a)];
                          const Logit y = logits_[static_cast<std::size_t>(b)];
                          return x > y || (x == y && a < b);
                        });
      sorted_ = end;
    }
    return order_[i];
  }

 private:
  static constexpr std::size_t first_stretch = 64;
  std::span<const Logit> logits_;
  std::vector<std::int32_t> order_;
  std::size_t sorted_ = 0;
};

/// Sum of exp((x - maximum) / temperature).
template <class Logit>
double sum_of_weights(const Logit* x, std::size_t n, double maximum, double temperature) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::size_t i = 0; i < n; ++i) sum += vector_exp((static_cast<double>(x[i]) - maximum) / temperature);
  return sum;
}

/// Sum of 0 times each number: 0 if all are finite, else NaN.
template <class Logit>
Logit sum_of_zeros(const Logit* x, std::size_t n) {
  Logit sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::size_t i = 0; i < n; ++i) sum += 0 * x[i];
  return sum;
}

}  // namespace

template <class Logit>
bool all_finite(std::span<const Logit> logits) {
  return sum_of_zeros(logits.data(), logits.size()) == 0;
}

void penalise_repetitions(std::vector<double>& logits, std::span<const std::int32_t> text, double penalty) {
  if (penalty == 1) return;
  for (const std::int32_t token : std::set<std::int32_t>(text.begin(), text.end())) {
    double& logit = logits[static_cast<std::size_t>(token)];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
}

template <class Logit>
std::int32_t choose_token(std::span<const Logit> logits, const SamplingOptions& options, std::int64_t position,
                          std::int64_t text) {
  const Logit maximum = max_of(logits.data(), std::ssize(logits));
  if (options.temperature == 0) {
    return static_cast<std::int32_t>(std::ranges::find(logits, maximum) - logits.begin());
  }
  LikeliestFirst<Logit> order(logits);
  const auto weight_at = [&](std::size_t i) {
    return sum_of_weights(&logits[static_cast<std::size_t>(order[i])], 1, maximum, options.temperature);
  };
  std::size_t candidates = logits.size();
  double total = 0;
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < candidates) {
    candidates = static_cast<std::size_t>(options.top_k);
    for (std::size_t i = 0; i < candidates; ++i) total += weight_at(i);
  } else {
    total = sum_of_weights(logits.data(), logits.size(), maximum, options.temperature);
  }
  if (options.top_p > 0 && options.top_p < 1) {
    double sum = 0;
    std::size_t kept = 0;
    while (kept < candidates && sum < options.top_p * total) sum += weight_at(kept++);
    candidates = kept;
    total = sum;
  }
  if (options.min_p > 0) {
    double sum = 0;  // the likeliest token has weight 1
    std::size_t kept = 0;
    while (kept < candidates && (kept == 0 || weight_at(kept) >= options.min_p)) sum += weight_at(kept++);
    candidates = kept;
    total = sum;
  }
  const auto low = [](std::int64_t number) { return static_cast<std::uint32_t>(number); };
  const auto high = [](std::int64_t number) { return static_cast<std::uint32_t>(number >> 32); };
  const auto words =
      philox4x32(mix64(options.seed ^ fnv1a("generate")), {low(position), high(position), low(text), high(text)});
  const double uniform = ((words[0] >> 5) * 67108864.0 + (words[1] >> 6)) / 9007199254740992.0;  // 53 bits
  double below = 0;
  for (std::size_t i = 0; i + 1 < candidates; ++i) {
    below += weight_at(i);
    if (uniform * total < below) return order[i];
  }
  return order[candidates - 1];
}

template <class Logit>
std::vector<TokenProbability> log_probabilities(std::span<const Logit> logits, std::int32_t token, std::int64_t count) {
  const double maximum = max_of(logits.data(), std::ssize(logits));
  const double log_sum = maximum + std::log(sum_of_weights(logits.data(), logits.size(), maximum, 1));
  std::vector<TokenProbability> result;
  const auto add = [&](std::int32_t id) { result.push_back({id, logits[static_cast<std::size_t>(id)] - log_sum}); };
  add(token);
  LikeliestFirst<Logit> order(logits);
  for (std::int64_t i = 0; i < std::min(count, static_cast<std::int64_t>(logits.size())); ++i) {
    add(order[static_cast<std::size_t>(i)]);
  }
  return result;
}

template bool all_finite(std::span<const float>);
template bool all_finite(std::span<const double>);
template std::int32_t choose_token(std::span<const float>, const SamplingOptions&, std::int64_t, std::int64_t);
template std::int32_t choose_token(std::span<const double>, const SamplingOptions&, std::int64_t, std::int64_t);
template std::vector<TokenProbability> log_probabilities(std::span<const float>, std::int32_t, std::int64_t);
template std::vector<TokenProbability> log_probabilities(std::span<const double>, std::int32_t, std::int64_t);

}  // namespace trireme::infer
