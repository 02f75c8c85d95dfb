#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "src/backend/kernels/experts.hpp"

namespace trireme::test {

/// Inputs of route and route_backward.
struct RouterInputs {
  std::int64_t n = 0, count = 0;
  RouterProblem problem;
  std::vector<double> logits;    // [n, count]
  std::vector<double> dweights;  // [n, k]
  std::vector<double> loads;     // [segments, count]: counts in the gradient of the balance loss
  double factor = 0, z_factor = 0;
  std::vector<double> bias{};  // [count]; empty: none
};

/// Results of route and route_backward.
struct RouterOutputs {
  std::vector<std::int32_t> experts;
  std::vector<double> weights, counts, sums, token_sums, dlogits;
};

/// Scores of some experts of a token, divided by their sum unless `divide` is false.
struct Shares {
  std::vector<double> value;
  std::vector<double> slope;  ///< derivative of each score by its logit, before the division
  double sum = 1;
  bool divide = true;

  Shares(const double* logits, std::int64_t count, const std::vector<std::int32_t>& members, RouterScore score,
         bool divided = true)
      : value(count), slope(count), divide(divided) {
    double total = 0;
    for (const std::int32_t e : members) {
      const double exponential = std::exp(logits[e]);
      value[e] = score == RouterScore::softmax ? exponential : exponential / (1 + exponential);
      slope[e] = score == RouterScore::softmax ? exponential : value[e] / (1 + exponential);
      total += value[e];
    }
    if (!divide) return;
    sum = total;
    for (double& share : value) share /= sum;
  }
  /// Derivative of the value of expert e by the logit of expert i.
  double derivative(std::int64_t e, std::int64_t i) const {
    return ((e == i ? 1 : 0) - (divide ? value[e] : 0)) * slope[i] / sum;
  }
};

/// Numbers in descending order of x; of equal ones the lower first.
inline std::vector<std::int32_t> descending(const double* x, std::int64_t n) {
  std::vector<std::int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t i, std::int32_t j) { return x[i] > x[j]; });
  return order;
}

/// Experts of a token that the router may choose: those of its best groups, in descending order of `keys`.
inline std::vector<std::int32_t> admitted(const RouterProblem& problem, const double* keys, std::int64_t count,
                                          const std::vector<double>& scores) {
  const std::int64_t size = count / problem.groups, summed = problem.per_token / problem.groups_per_token;
  std::vector<double> group_score;
  for (std::int64_t g = 0; g < problem.groups; ++g) {
    std::vector<double> own(scores.begin() + g * size, scores.begin() + (g + 1) * size);
    std::sort(own.rbegin(), own.rend());
    group_score.push_back(std::accumulate(own.begin(), own.begin() + summed, 0.0));
  }
  std::vector<std::int32_t> best = descending(group_score.data(), problem.groups), result;
  best.resize(problem.groups_per_token);
  for (const std::int32_t e : descending(keys, count)) {
    if (std::find(best.begin(), best.end(), e / size) != best.end()) result.push_back(e);
  }
  return result;
}

/// Computes both kernels by their definitions, in fp64.
inline RouterOutputs defined(const RouterInputs& in) {
  const RouterProblem& problem = in.problem;
  const std::int64_t k = problem.per_token, count = in.count;
  const bool softmax = problem.score == RouterScore::softmax, of_chosen = softmax && problem.softmax_of_chosen;
  RouterOutputs out;
  out.counts.assign(problem.segments * count, 0);
  out.sums = out.counts;
  out.token_sums = {0, 0};
  std::vector<std::int32_t> all(count);
  std::iota(all.begin(), all.end(), 0);
  for (std::int64_t t = 0; t < in.n; ++t) {
    const double* logits = in.logits.data() + t * count;
    const Shares probabilities(logits, count, all, problem.score);
    const Shares scores(logits, count, all, problem.score, softmax);
    const std::vector<double> own_logits(logits, logits + count);
    std::vector<double> biased = scores.value;
    for (std::size_t e = 0; e < in.bias.size(); ++e) biased[e] += in.bias[e];
    std::vector<std::int32_t> chosen =
        admitted(problem, in.bias.empty() ? logits : biased.data(), count, of_chosen ? own_logits : biased);
    chosen.resize(k);
    const Shares weights(logits, count, softmax && !of_chosen ? all : chosen, problem.score, softmax || k > 1);
    std::vector<double> dlogits(count, 0);
    for (std::int64_t j = 0; j < k; ++j) {
      out.experts.push_back(chosen[j]);
      out.weights.push_back(problem.scaling * weights.value[chosen[j]]);
      for (std::int64_t e = 0; e < count; ++e) {
        dlogits[e] += problem.scaling * in.dweights[t * k + j] * weights.derivative(chosen[j], e);
      }
    }
    const std::int64_t segment = t % problem.segments * count;
    const std::vector<std::int32_t> order = descending(logits, count);
    for (std::int64_t j = 0; j < k; ++j) ++out.counts[segment + order[j]];
    const Shares softmax_of_all(logits, count, all, RouterScore::softmax);
    double exponentials = 0;
    for (std::int64_t e = 0; e < count; ++e) exponentials += std::exp(logits[e]);
    const double log_sum_exp = std::log(exponentials);
    out.token_sums[0] += log_sum_exp * log_sum_exp;
    for (std::int64_t e = 0; e < count; ++e) {
      out.sums[segment + e] += probabilities.value[e];
      out.token_sums[1] -= probabilities.value[e] * std::log(probabilities.value[e]);
      for (std::int64_t i = 0; i < count; ++i) {
        dlogits[e] += in.factor * in.loads[segment + i] * probabilities.derivative(i, e);
      }
      dlogits[e] += 2 * in.z_factor * log_sum_exp * softmax_of_all.value[e];
    }
    out.dlogits.insert(out.dlogits.end(), dlogits.begin(), dlogits.end());
  }
  return out;
}

}  // namespace trireme::test
