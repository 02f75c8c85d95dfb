#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "tests/backend/attention_reference.hpp"
#include "tests/support/finite_difference.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/support/test_backend.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme::test {

/// Global numbers of the samples of a batch.
inline const std::vector<std::int64_t> sample_numbers = {7, (std::int64_t{3} << 32) + 5, 12, 1, 0, 2, 3, 4, 5, 6, 8};

struct AttentionCase {
  std::int64_t queries, keys, batch, heads, kv_heads, head_dim;
  bool causal = true;
  double dropout = 0;
  std::vector<std::int32_t> lengths{};                 ///< keys of each sample; none: all
  std::vector<std::vector<std::int32_t>> documents{};  ///< positions where those of each sample begin; none: one at 0
  std::int64_t window = -1;                            ///< AttentionProblem::window
  double soft_cap = 0;                                 ///< AttentionProblem::soft_cap
  std::int64_t alibi_heads = 0;                        ///< AttentionProblem::alibi_heads
};

/// Name of the test of a type and a case.
inline std::string name_of_case(const testing::TestParamInfo<std::tuple<DType, AttentionCase>>& info) {
  const AttentionCase& c = std::get<1>(info.param);
  std::string name = fmt::format("{}_{}x{}_{}_samples_{}_of_{}_heads_of_{}", name_of(std::get<0>(info.param)),
                                 c.queries, c.keys, c.batch, c.kv_heads, c.heads, c.head_dim);
  for (const auto& [has, part] : {std::pair{c.causal, "_causal"},
                                  {c.dropout > 0, "_dropout"},
                                  {!c.lengths.empty(), "_padded"},
                                  {!c.documents.empty(), "_documents"},
                                  {c.soft_cap > 0, "_capped"},
                                  {c.alibi_heads > 0, "_biased"}}) {
    if (has) name += part;
  }
  return c.window < 0 ? name : fmt::format("{}_window_{}", name, c.window);
}

/// Points into `c`. It has no documents: see first_visible_of.
inline AttentionProblem problem_of(const AttentionCase& c) {
  return {.queries = c.queries,
          .keys = c.keys,
          .first_query = c.keys - c.queries,
          .batch = c.batch,
          .heads = c.heads,
          .kv_heads = c.kv_heads,
          .head_dim = c.head_dim,
          .scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),
          .soft_cap = c.soft_cap,
          .causal = c.causal,
          .lengths = c.lengths.empty() ? nullptr : c.lengths.data(),
          .window = c.window,
          .alibi_heads = c.alibi_heads,
          .alibi_shift = 1.5,
          .dropout = {c.dropout, 1234, 3, DropoutSite::attention_scores, sample_numbers.data()},
          .first_head = 2};
}

/// A problem with its first visible keys.
struct Packed {
  explicit Packed(const AttentionCase& c)
      : shape(c), first_visible(first_visible_of(c.documents, c.keys - c.queries, c.queries)), p(problem_of(shape)) {
    if (!c.documents.empty()) p.first_visible = first_visible.data();
  }
  Packed(const Packed&) = delete;
  AttentionCase shape;
  std::vector<std::int32_t> first_visible;
  AttentionProblem p;
};

inline AttentionTensors random_tensors(const AttentionProblem& p, std::uint64_t seed = 1) {
  AttentionTensors t;
  const std::int64_t q_size = p.queries * p.batch * p.heads * p.head_dim;
  const std::int64_t kv_size = p.keys * p.batch * p.kv_heads * p.head_dim;
  t.q = random_values(q_size, seed, -3, 3);  // large scores: a softmax far from uniform
  t.k = random_values(kv_size, seed + 1, -3, 3);
  t.v = random_values(kv_size, seed + 2);
  t.dout = random_values(q_size, seed + 3);
  return t;
}

/// Heads inside a larger tensor: each is followed by `gap` elements of other heads, all NaN.
class ScatteredHeads {
 public:
  ScatteredHeads(Backend& backend, DType dtype, std::int64_t batch, std::int64_t heads, std::int64_t d,
                 const std::vector<double>& dense)
      : backend_(backend), batch_(batch), heads_(heads), d_(d) {
    const std::int64_t rows = static_cast<std::int64_t>(dense.size()) / d;
    std::vector<double> values(rows * (d + gap), std::nan(""));
    for (std::size_t i = 0; i < dense.size(); ++i) values[i / d * (d + gap) + i % d] = dense[i];
    tensor_ = make_tensor(backend, dtype, {rows, d + gap}, values);
  }
  /// Values of the heads as a dense array. Fails if an element of other heads was written.
  std::vector<double> dense() const {
    std::vector<double> result;
    const std::vector<double> values = values_of(backend_, tensor_);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (static_cast<std::int64_t>(i) % (d_ + gap) < d_) {
        result.push_back(values[i]);
      } else {
        EXPECT_TRUE(std::isnan(values[i])) << "wrote between the heads";
      }
    }
    return result;
  }
  template <class View = ConstTensorView>
  HeadsOf<View> view() const {
    return {tensor_, batch_ * heads_ * (d_ + gap), heads_ * (d_ + gap), d_ + gap};
  }

 private:
  static constexpr std::int64_t gap = 5;
  Backend& backend_;
  std::int64_t batch_, heads_, d_;
  Tensor tensor_;
};

/// Computes forward and backward in `dtype` from the inputs in t. Rounds them to `dtype` and fills in the results.
inline void compute(DType dtype, AttentionProblem p, AttentionTensors& t, int threads = 2) {
  const auto backend = test::make_backend(threads);
  Backend& b = *backend;
  Stream& stream = b.compute_stream();
  const Tensor samples = samples_tensor(b, {p.dropout.samples, p.dropout.samples + p.batch});
  p.dropout.samples = samples.view().as<std::int64_t>();
  Tensor lengths;
  if (p.lengths != nullptr) {
    lengths = make_tensor(b, {p.batch}, std::vector(p.lengths, p.lengths + p.batch));
    p.lengths = lengths.view().as<std::int32_t>();
  }
  Tensor first_visible;
  if (p.first_visible != nullptr) {
    const std::int64_t count = p.queries * p.batch;
    first_visible = make_tensor(b, {count}, std::vector(p.first_visible, p.first_visible + count));
    p.first_visible = first_visible.view().as<std::int32_t>();
  }

  const auto queries = [&](const std::vector<double>& x) {
    return ScatteredHeads(b, dtype, p.batch, p.heads, p.head_dim, x);
  };
  const auto keys = [&](const std::vector<double>& x) {
    return ScatteredHeads(b, dtype, p.batch, p.kv_heads, p.head_dim, x);
  };
  const std::vector<double> query_poison(t.q.size(), std::nan("")), key_poison(t.k.size(), std::nan(""));
  const ScatteredHeads q = queries(t.q), k = keys(t.k), v = keys(t.v), dout = queries(t.dout);
  const ScatteredHeads out = queries(query_poison), dq = queries(query_poison);
  const ScatteredHeads dk = keys(key_poison), dv = keys(key_poison);
  const Tensor lse = poisoned_tensor(b, accumulation_type(dtype), {p.batch, p.heads, p.queries});
  const Tensor row_dot = poisoned_tensor(b, accumulation_type(dtype), {p.batch, p.heads, p.queries});
  b.attention().attention(stream, p, q.view(), k.view(), v.view(), out.view<TensorView>(), lse);
  b.attention().attention_backward(stream, p, dout.view(), q.view(), k.view(), v.view(), out.view(), lse, row_dot,
                                   dq.view<TensorView>(), dk.view<TensorView>(), dv.view<TensorView>());
  t.q = q.dense();
  t.k = k.dense();
  t.v = v.dense();
  t.dout = dout.dense();
  t.out = out.dense();
  t.log_sum_exp = values_of(b, lse);
  t.dq = dq.dense();
  t.dk = dk.dense();
  t.dv = dv.dense();
}

inline void expect_equal(const AttentionTensors& a, const AttentionTensors& b) {
  EXPECT_EQ(a.out, b.out);
  EXPECT_EQ(a.log_sum_exp, b.log_sum_exp);
  EXPECT_EQ(a.dq, b.dq);
  EXPECT_EQ(a.dk, b.dk);
  EXPECT_EQ(a.dv, b.dv);
}

/// Expects zeros in the rows of queries before the first key, and finite numbers everywhere.
inline void expect_blind_rows_are_zero(const AttentionProblem& p, const AttentionTensors& t) {
  const std::int64_t blind = p.queries - p.keys;
  for (std::int64_t i = 0; i < blind * p.heads * p.head_dim; ++i) EXPECT_EQ(t.out[i], 0);
  for (std::int64_t i = 0; i < blind * p.heads * p.head_dim; ++i) EXPECT_EQ(t.dq[i], 0);
  for (std::int64_t i = 0; i < blind; ++i) EXPECT_EQ(t.log_sum_exp[i], -std::numeric_limits<double>::infinity());
  for (const std::vector<double>* x : {&t.out, &t.dq, &t.dk, &t.dv}) {
    for (const double value : *x) EXPECT_TRUE(std::isfinite(value));
  }
}

/// Computes attention and its gradients, and compares each with its definition.
inline void compute_and_match_definition(DType dtype, const AttentionProblem& p, AttentionTensors& actual) {
  compute(dtype, p, actual);
  AttentionTensors expected = actual;
  reference_attention(p, expected);
  const DType accumulation = accumulation_type(dtype);
  expect_close(actual.out, expected.out, tolerance(dtype, Operation::sum), "out");
  expect_close(actual.log_sum_exp, expected.log_sum_exp, tolerance(accumulation, Operation::sum), "log_sum_exp");
  expected.out = actual.out;
  reference_attention_backward(p, expected);
  expect_close(actual.dq, expected.dq, tolerance(dtype, Operation::sum), "dq");
  expect_close(actual.dk, expected.dk, tolerance(dtype, Operation::sum), "dk");
  expect_close(actual.dv, expected.dv, tolerance(dtype, Operation::sum), "dv");
}

/// Compares the gradients in fp64 with finite differences.
inline void expect_backward_is_derivative(const AttentionProblem& p, AttentionTensors& t) {
  compute(DType::fp64, p, t);
  const AttentionTensors computed = t;
  const auto loss = [&] {
    compute(DType::fp64, p, t, 1);
    return std::inner_product(t.out.begin(), t.out.end(), t.dout.begin(), 0.0);
  };
  expect_derivative(t.q, computed.dq, loss, "dq");
  expect_derivative(t.k, computed.dk, loss, "dk");
  expect_derivative(t.v, computed.dv, loss, "dv");
}

}  // namespace trireme::test
