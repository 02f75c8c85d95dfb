#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "src/backend/cpu/rows.hpp"
#include "src/backend/kernels/experts.hpp"
#include "src/base/exponentials.hpp"

namespace trireme::cpu {

/// Chooses by largest number.
template <class A>
class Ranking {
 public:
  /// best[j] = number of the (j + 1)-th largest candidate x[i]; of equal ones the lower comes first, NaN last.
  void best_of(const A* x, const std::vector<char>& is_candidate, std::int64_t k, std::int32_t* best) {
    left_ = is_candidate;
    keys_.resize(left_.size());
    for (std::size_t i = 0; i < keys_.size(); ++i) keys_[i] = left_[i] ? x[i] : taken;
    for (std::int64_t j = 0; j < k; ++j) {
      const A largest = max_of(keys_.data(), std::ssize(keys_));  // ignores NaN
      std::int64_t next = std::find(keys_.begin(), keys_.end(), largest) - keys_.begin();
      if (next == std::ssize(keys_)) next = std::find(left_.begin(), left_.end(), true) - left_.begin();
      keys_[next] = taken;
      left_[next] = false;
      best[j] = static_cast<std::int32_t>(next);
    }
  }

 private:
  static constexpr A taken = std::numeric_limits<A>::quiet_NaN();
  std::vector<A> keys_;
  std::vector<char> left_;
};

/// The router's view of one token at a time.
template <class T>
class RoutedToken {
  using A = Accumulation<T>;

 public:
  RoutedToken(const RouterProblem& problem, std::int64_t count)
      : problem_(problem), count_(count), buffer_(count), scores_(count) {}

  void read(const T* logits) {
    logits_ = row_in(logits, count_, buffer_.data());
    const A shift = max_of(logits_, count_), sum = sum_of_exponentials(logits_, count_, shift);
    log_sum_exp_ = shift + std::log(sum);
    if (problem_.score == RouterScore::softmax) {
      scaled_exponentials(logits_, count_, shift, 1 / sum, scores_.data());
      total_ = 1;
    } else {
      for (std::int64_t e = 0; e < count_; ++e) scores_[e] = 1 / (1 + vector_exp(-logits_[e]));
      total_ = std::accumulate(scores_.begin(), scores_.end(), A{0}) + A(1e-20);
    }
  }

  A logit(std::int64_t e) const { return logits_[e]; }
  /// softmax(logits) or sigmoid(logits).
  A score(std::int64_t e) const { return scores_[e]; }
  /// p of BalanceGradient.
  A probability(std::int64_t e) const { return scores_[e] / total_; }
  A log_sum_exp() const { return log_sum_exp_; }
  /// -sum of p log p.
  A entropy() const {
    A sum = 0;
    for (std::int64_t e = 0; e < count_; ++e) {
      const A p = probability(e);
      if (p > 0) sum -= p * std::log(p);
    }
    return sum;
  }
  bool softmax_of_chosen() const { return problem_.score == RouterScore::softmax && problem_.softmax_of_chosen; }

  /// `bias` may be null.
  void choose(const A* bias, std::int32_t* chosen) {
    const A* keys = logits_;
    if (bias != nullptr) {
      biased_.resize(count_);
      for (std::int64_t e = 0; e < count_; ++e) biased_[e] = scores_[e] + bias[e];
      keys = biased_.data();
    }
    is_candidate_.assign(count_, problem_.groups == 1);
    if (problem_.groups > 1) {
      admit_best_groups(keys, bias != nullptr || softmax_of_chosen() ? keys : scores_.data());
    }
    ranking_.best_of(keys, is_candidate_, problem_.per_token, chosen);
  }
  void choose_by_score(std::int32_t* chosen) {
    is_candidate_.assign(count_, true);
    ranking_.best_of(logits_, is_candidate_, problem_.per_token, chosen);
  }

  /// Weights of the chosen experts, before scaling.
  void weigh(const std::int32_t* chosen, A* weights) const {
    const std::int64_t k = problem_.per_token;
    for (std::int64_t j = 0; j < k; ++j) weights[j] = softmax_of_chosen() ? logit(chosen[j]) : score(chosen[j]);
    if (softmax_of_chosen()) {
      const A shift = max_of(weights, k);
      scaled_exponentials(weights, k, shift, 1 / sum_of_exponentials(weights, k, shift), weights);
    } else if (problem_.score == RouterScore::sigmoid && k > 1) {
      const A sum = std::accumulate(weights, weights + k, A(1e-20));
      for (std::int64_t j = 0; j < k; ++j) weights[j] /= sum;
    }
  }

 private:
  /// Compares experts by `keys`; a group adds up `scores`.
  void admit_best_groups(const A* keys, const A* scores) {
    const std::int64_t size = count_ / problem_.groups, summed = problem_.per_token / problem_.groups_per_token;
    group_scores_.assign(problem_.groups, 0);
    best_.resize(std::max(summed, problem_.groups_per_token));
    const std::vector<char> all_of_group(size, true), all_groups(problem_.groups, true);
    for (std::int64_t g = 0; g < problem_.groups; ++g) {
      ranking_.best_of(keys + g * size, all_of_group, summed, best_.data());
      for (std::int64_t j = 0; j < summed; ++j) group_scores_[g] += scores[g * size + best_[j]];
    }
    ranking_.best_of(group_scores_.data(), all_groups, problem_.groups_per_token, best_.data());
    for (std::int64_t j = 0; j < problem_.groups_per_token; ++j) {
      std::fill_n(is_candidate_.begin() + best_[j] * size, size, true);
    }
  }

  const RouterProblem& problem_;
  std::int64_t count_;
  const A* logits_ = nullptr;
  std::vector<A> buffer_, scores_, biased_;
  A total_ = 1, log_sum_exp_ = 0;
  Ranking<A> ranking_;
  std::vector<char> is_candidate_;
  std::vector<A> group_scores_;
  std::vector<std::int32_t> best_;
};

}  // namespace trireme::cpu
