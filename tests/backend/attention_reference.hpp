#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "src/backend/kernels/attention.hpp"

namespace trireme::test {

/// The tensors of an attention, each dense: [positions, batch, heads, head_dim]; log_sum_exp [batch, heads, queries].
struct AttentionTensors {
  std::vector<double> q, k, v, dout;                 // given
  std::vector<double> out, log_sum_exp, dq, dk, dv;  // computed
};

/// AttentionProblem::first_visible of queries from position `first_query` on.
inline std::vector<std::int32_t> first_visible_of(const std::vector<std::vector<std::int32_t>>& documents,
                                                  std::int64_t first_query, std::int64_t queries) {
  std::vector<std::int32_t> result;
  for (std::int64_t position = first_query; position < first_query + queries; ++position) {
    for (const std::vector<std::int32_t>& starts : documents) {
      std::int32_t begin = 0;
      for (const std::int32_t start : starts) begin = start <= position ? start : begin;
      result.push_back(begin);
    }
  }
  return result;
}

/// Slope of ALiBi's biases by the published recursion: heads of a power of two have a geometric series, other numbers
/// those of the next lower power, then every second one of the next higher.
inline double reference_slope(std::int64_t heads, std::int64_t head) {
  const auto n = static_cast<std::int64_t>(std::exp2(std::floor(std::log2(heads))));
  if (n == heads) return std::pow(std::exp2(-8.0 / static_cast<double>(n)), static_cast<double>(head + 1));
  return head < n ? reference_slope(n, head) : reference_slope(2 * n, 2 * (head - n));
}

/// Attention by the definition, in fp64. Calls `visit(head_row, kv_rows, probability, kept, slope)` for each query. The
/// arguments are the offsets of its row and of the rows of keys it attends to, their probabilities, dropout's factors,
/// and the derivatives of the soft cap. p.dropout.samples, p.lengths and p.first_visible are read on the host. Sets
/// t.log_sum_exp.
template <class Visit>
void for_rows_of_attention(const AttentionProblem& p, AttentionTensors& t, Visit&& visit) {
  const std::int64_t d = p.head_dim, heads_per_kv_head = p.heads / p.kv_heads;
  t.log_sum_exp.assign(p.batch * p.heads * p.queries, 0);
  for (std::int64_t index = 0; index < p.batch * p.heads * p.queries; ++index) {
    const std::int64_t i = index % p.queries, head = index / p.queries % p.heads, sample = index / p.queries / p.heads;
    const std::int64_t position = p.first_query + i;
    const std::int64_t length = p.lengths == nullptr ? p.first_key + p.keys : p.lengths[sample];
    const std::int64_t end = p.lengths != nullptr && position >= length ? p.first_key : length;
    const std::int64_t row = ((i * p.batch + sample) * p.heads + head) * d;
    std::vector<std::int64_t> kv_rows;
    std::vector<double> probability, kept, slope;
    const std::int64_t first = p.first_visible == nullptr ? 0 : p.first_visible[i * p.batch + sample];
    double max_score = -std::numeric_limits<double>::infinity(), total = 0;
    for (std::int64_t j = 0; j < p.keys; ++j) {
      if (p.first_key + j < first || (p.window >= 0 && position - (p.first_key + j) > p.window)) continue;
      if (p.first_key + j >= end || (p.causal && p.first_key + j > position)) break;
      kv_rows.push_back(((j * p.batch + sample) * p.kv_heads + head / heads_per_kv_head) * d);
      double score = 0;
      for (std::int64_t c = 0; c < d; ++c) score += t.q[row + c] * t.k[kv_rows.back() + c];
      score *= p.scale;
      probability.push_back(p.soft_cap > 0 ? p.soft_cap * std::tanh(score / p.soft_cap) : score);
      // The softmax cancels a constant: without a causal mask the query's position.
      const std::int64_t last = p.causal ? position : length - 1;
      const double bias = p.alibi_heads == 0
                              ? 0
                              : std::exp2(-p.alibi_shift) * reference_slope(p.alibi_heads, p.first_head + head) *
                                    static_cast<double>(p.first_key + j - last);
      slope.push_back(p.soft_cap > 0 ? 1 - std::pow(probability.back() / p.soft_cap, 2) : 1);
      probability.back() += bias;
      max_score = std::max(max_score, probability.back());
      const bool keep = !p.dropout.enabled() || p.dropout.keeps(p.dropout.head_key(p.first_head + head),
                                                                p.dropout.samples[sample], position, p.first_key + j);
      kept.push_back(keep ? static_cast<double>(p.dropout.scale) : 0);
    }
    for (double& x : probability) total += x = std::exp(x - max_score);
    for (double& x : probability) x /= total;
    t.log_sum_exp[index] = max_score + std::log(total);
    visit(row, kv_rows, probability, kept, slope);
  }
}

inline void reference_attention(const AttentionProblem& p, AttentionTensors& t) {
  t.out.assign(t.q.size(), 0);
  for_rows_of_attention(
      p, t,
      [&](std::int64_t row, const auto& kv_rows, const auto& probability, const auto& kept, const auto& /*slope*/) {
        for (std::size_t j = 0; j < kv_rows.size(); ++j) {
          for (std::int64_t c = 0; c < p.head_dim; ++c)
            t.out[row + c] += probability[j] * kept[j] * t.v[kv_rows[j] + c];
        }
      });
}

/// Backward through the softmax takes sum of dout out from t.out: what forward has stored, rounded to its type.
inline void reference_attention_backward(const AttentionProblem& p, AttentionTensors& t) {
  t.dq.assign(t.q.size(), 0);
  t.dk.assign(t.k.size(), 0);
  t.dv.assign(t.k.size(), 0);
  for_rows_of_attention(
      p, t, [&](std::int64_t row, const auto& kv_rows, const auto& probability, const auto& kept, const auto& slope) {
        double mean = 0;
        for (std::int64_t c = 0; c < p.head_dim; ++c) mean += t.dout[row + c] * t.out[row + c];
        for (std::size_t j = 0; j < kv_rows.size(); ++j) {
          double dp = 0;
          for (std::int64_t c = 0; c < p.head_dim; ++c) dp += t.dout[row + c] * t.v[kv_rows[j] + c];
          const double ds = probability[j] * (dp * kept[j] - mean) * slope[j] * p.scale;
          for (std::int64_t c = 0; c < p.head_dim; ++c) {
            t.dv[kv_rows[j] + c] += probability[j] * kept[j] * t.dout[row + c];
            t.dk[kv_rows[j] + c] += ds * t.q[row + c];
            t.dq[row + c] += ds * t.k[kv_rows[j] + c];
          }
        }
      });
}

/// Calls `visit` with the elements of x [positions, batch, heads, d] that are padding; its first position is `first`.
template <class Visit>
void for_padding(const AttentionProblem& p, std::int64_t first, std::int64_t heads, std::vector<double>& x,
                 Visit&& visit) {
  const std::int64_t row = heads * p.head_dim;
  for (std::int64_t i = 0; p.lengths != nullptr && i < std::ssize(x); ++i) {
    if (first + i / row / p.batch >= p.lengths[i / row % p.batch]) visit(x[i]);
  }
}
/// Puts NaN where inputs are padding and must not affect any result.
inline void poison_padding(const AttentionProblem& p, AttentionTensors& t) {
  const auto poison = [](double& x) { x = std::nan(""); };
  for (std::vector<double>* x : {&t.q, &t.dout}) for_padding(p, p.first_query, p.heads, *x, poison);
  for (std::vector<double>* x : {&t.k, &t.v}) for_padding(p, p.first_key, p.kv_heads, *x, poison);
}
inline void expect_padding_is_zero(const AttentionProblem& p, AttentionTensors t) {
  const auto expect_zero = [](double x) { ASSERT_EQ(x, 0); };
  for (std::vector<double>* x : {&t.out, &t.dq}) for_padding(p, p.first_query, p.heads, *x, expect_zero);
  for (std::vector<double>* x : {&t.dk, &t.dv}) for_padding(p, p.first_key, p.kv_heads, *x, expect_zero);
}

}  // namespace trireme::test
