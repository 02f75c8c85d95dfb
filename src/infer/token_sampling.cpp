#include "src/infer/token_sampling.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "src/base/hash.hpp"
#include "src/base/philox.hpp"

namespace trireme::infer {
namespace {

/// Ids of a vocabulary, likeliest first and ties by id. Sorts lazily, since few of a large vocabulary are read.
class LikeliestFirst {
 public:
  explicit LikeliestFirst(const std::vector<double>& logits) : logits_(logits), order_(logits.size()) {
    std::iota(order_.begin(), order_.end(), 0);
  }

  std::int32_t operator[](std::size_t i) {
    while (i >= sorted_) {
      const std::size_t end = std::min(order_.size(), std::max(first_stretch, 8 * sorted_));
      std::partial_sort(order_.begin() + static_cast<std::ptrdiff_t>(sorted_),
                        order_.begin() + static_cast<std::ptrdiff_t>(end), order_.end(),
                        [&](std::int32_t a, std::int32_t b) {
                          const double x = logits_[static_cast<std::size_t>(a)];
                          const double y = logits_[static_cast<std::size_t>(b)];
                          return x > y || (x == y && a < b);
                        });
      sorted_ = end;
    }
    return order_[i];
  }

 private:
  static constexpr std::size_t first_stretch = 64;
  const std::vector<double>& logits_;
  std::vector<std::int32_t> order_;
  std::size_t sorted_ = 0;
};

}  // namespace

void penalise_repetitions(std::vector<double>& logits, std::span<const std::int32_t> text, double penalty) {
  if (penalty == 1) return;
  for (const std::int32_t token : std::set<std::int32_t>(text.begin(), text.end())) {
    double& logit = logits[static_cast<std::size_t>(token)];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
}

std::int32_t choose_token(const std::vector<double>& logits, const SamplingOptions& options, std::int64_t position,
                          std::int64_t text) {
  const auto likeliest = std::ranges::max_element(logits);
  if (options.temperature == 0) return static_cast<std::int32_t>(likeliest - logits.begin());
  const double maximum = *likeliest;
  const auto weight = [&](double logit) { return std::exp((logit - maximum) / options.temperature); };
  LikeliestFirst order(logits);
  const auto weight_at = [&](std::size_t i) { return weight(logits[static_cast<std::size_t>(order[i])]); };
  std::size_t candidates = logits.size();
  double total = 0;
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < candidates) {
    candidates = static_cast<std::size_t>(options.top_k);
    for (std::size_t i = 0; i < candidates; ++i) total += weight_at(i);
  } else {
    for (const double logit : logits) total += weight(logit);
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

std::vector<TokenProbability> log_probabilities(const std::vector<double>& logits, std::int32_t token,
                                                std::int64_t count) {
  const double maximum = *std::ranges::max_element(logits);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - maximum);
  const double log_sum = maximum + std::log(sum);
  std::vector<TokenProbability> result;
  const auto add = [&](std::int32_t id) { result.push_back({id, logits[static_cast<std::size_t>(id)] - log_sum}); };
  add(token);
  LikeliestFirst order(logits);
  for (std::int64_t i = 0; i < std::min(count, static_cast<std::int64_t>(logits.size())); ++i) {
    add(order[static_cast<std::size_t>(i)]);
  }
  return result;
}

}  // namespace trireme::infer
