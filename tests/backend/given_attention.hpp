#pragma once

#include <functional>
#include <utility>

#include "tests/backend/attention_cases.hpp"

namespace trireme::test {

/// An attention problem with random inputs on a backend. Padding is NaN.
class GivenAttention {
 public:
  GivenAttention(Backend& backend, DType dtype, const AttentionCase& shape, std::uint64_t seed)
      : b(backend),
        dtype(dtype),
        packed_(shape),
        lengths_(make_tensor(b, {std::ssize(shape.lengths)}, shape.lengths)),
        first_visible_(make_tensor(b, {std::ssize(packed_.first_visible)}, packed_.first_visible)),
        samples_(samples_tensor(b, {sample_numbers.begin(), sample_numbers.begin() + shape.batch})) {
    problem = packed_.p;
    if (!shape.causal || shape.keys < shape.queries) problem.first_query = 0;
    AttentionTensors t = random_tensors(problem, seed);
    poison_padding(problem, t);
    const Shape queries{shape.queries, shape.batch, shape.heads, shape.head_dim};
    const Shape keys{shape.keys, shape.batch, shape.kv_heads, shape.head_dim};
    q = make_tensor(b, dtype, queries, t.q);
    k = make_tensor(b, dtype, keys, t.k);
    v = make_tensor(b, dtype, keys, t.v);
    dout = make_tensor(b, dtype, queries, t.dout);
    problem.dropout.samples = samples_.view().as<std::int64_t>();
    if (problem.lengths != nullptr) problem.lengths = lengths_.view().as<std::int32_t>();
    if (problem.first_visible != nullptr) problem.first_visible = first_visible_.view().as<std::int32_t>();
  }
  AttentionTensors reference() const {
    AttentionTensors t;
    t.q = values_of(b, q);
    t.k = values_of(b, k);
    t.v = values_of(b, v);
    t.dout = values_of(b, dout);
    reference_attention(on_host(), t);
    return t;
  }
  void reference_backward(AttentionTensors& t) const { reference_attention_backward(on_host(), t); }

  /// The problem with its lengths, first visible keys and samples on the host.
  AttentionProblem on_host() const {
    AttentionProblem p = problem;
    p.dropout.samples = packed_.p.dropout.samples;
    p.lengths = packed_.p.lengths;
    p.first_visible = packed_.p.first_visible;
    return p;
  }
  Heads queries(TensorView x) const { return heads_of(x, problem.heads); }
  Heads keys(TensorView x) const { return heads_of(x, problem.kv_heads); }
  Tensor like(const Tensor& x, DType type) const { return poisoned_tensor(b, type, x.view().shape()); }
  Tensor statistics() const {
    return poisoned_tensor(b, accumulation_type(dtype), {problem.batch, problem.heads, problem.queries});
  }

  Backend& b;
  DType dtype;
  AttentionProblem problem;
  Tensor q, k, v, dout;

 private:
  Heads heads_of(TensorView x, std::int64_t count) const {
    const std::int64_t d = problem.head_dim;
    return {x, problem.batch * count * d, count * d, d};
  }
  Packed packed_;
  Tensor lengths_, first_visible_, samples_;
};

using KeyRanges = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// Calls `visit` with the problem of each range of keys, whose results are merged, and its first key.
inline void for_blocks(const GivenAttention& given, const KeyRanges& ranges,
                       const std::function<void(const AttentionProblem& block, std::int64_t begin)>& visit) {
  for (const auto& [begin, end] : ranges) {
    AttentionProblem block = given.problem;
    block.keys = end - begin;
    block.first_key = begin;
    block.results = AttentionResults::merge;
    visit(block, begin);
  }
}

/// Merges attention to the keys of each range into `sums` and `lse`.
inline void attend_in_parts(const GivenAttention& given, const KeyRanges& ranges, const Tensor& sums,
                            const Tensor& lse) {
  Stream& stream = given.b.compute_stream();
  given.b.elementwise().fill(stream, -std::numeric_limits<double>::infinity(), lse);
  for_blocks(given, ranges, [&](const AttentionProblem& block, std::int64_t begin) {
    given.b.attention().attention(stream, block, given.queries(given.q), given.keys(given.k).from(begin),
                                  given.keys(given.v).from(begin), given.queries(sums), lse);
  });
}

/// Expects ranges of keys to give the results of all keys at once, forward and backward.
inline void expect_parts_join(const GivenAttention& given, const KeyRanges& ranges, Tolerance close) {
  Backend& b = given.b;
  Stream& stream = b.compute_stream();
  const DType accumulation = accumulation_type(given.dtype);
  const AttentionTensors expected = given.reference();
  const Tensor sums = given.like(given.q, accumulation), out = given.like(given.q, given.dtype);
  const Tensor lse = given.statistics(), row_dot = given.statistics();
  attend_in_parts(given, ranges, sums, lse);
  expect_close(values_of(b, sums), expected.out, close, "out");
  expect_close(values_of(b, lse), expected.log_sum_exp, tolerance(accumulation, Operation::sum), "log_sum_exp");

  const AttentionProblem& p = given.problem;
  b.attention().copy_heads(stream, {p.queries, p.batch, p.heads, p.head_dim}, given.queries(sums), given.queries(out));
  EXPECT_EQ(values_of(b, out), values_of(b, converted(b, sums, given.dtype)));
  AttentionTensors gradients = expected;
  gradients.out = values_of(b, out);
  given.reference_backward(gradients);
  const Tensor dq = given.like(given.q, accumulation), dk = given.like(given.k, accumulation);
  const Tensor dv = given.like(given.k, accumulation);
  for (const Tensor* tensor : {&dq, &dk, &dv}) b.elementwise().fill(stream, 0, *tensor);
  for_blocks(given, ranges, [&](const AttentionProblem& block, std::int64_t begin) {
    b.attention().attention_backward(stream, block, given.queries(given.dout), given.queries(given.q),
                                     given.keys(given.k).from(begin), given.keys(given.v).from(begin),
                                     given.queries(out), lse, row_dot, given.queries(dq), given.keys(dk).from(begin),
                                     given.keys(dv).from(begin));
  });
  expect_close(values_of(b, dq), gradients.dq, close, "dq");
  expect_close(values_of(b, dk), gradients.dk, close, "dk");
  expect_close(values_of(b, dv), gradients.dv, close, "dv");
}

/// Expects a NaN in the first half of the keys to reach every query, also those that no key of the other half is
/// visible to, in both orders of the halves.
inline void expect_nan_of_one_part_is_not_hidden(Backend& b, DType dtype, const AttentionCase& shape) {
  GivenAttention given(b, dtype, shape, 1);
  std::vector<double> keys = values_of(b, given.k);
  std::fill_n(keys.begin(), shape.batch * shape.kv_heads * shape.head_dim, std::nan(""));
  given.k = make_tensor(b, dtype, given.k.view().shape(), keys);
  const std::int64_t half = shape.keys / 2;
  for (const KeyRanges& ranges : {KeyRanges{{0, half}, {half, shape.keys}}, {{half, shape.keys}, {0, half}}}) {
    const Tensor sums = given.like(given.q, accumulation_type(dtype)), lse = given.statistics();
    attend_in_parts(given, ranges, sums, lse);
    for (const Tensor* result : {&sums, &lse}) {
      for (const double x : values_of(b, *result)) ASSERT_TRUE(std::isnan(x)) << "from key " << ranges[0].first;
    }
  }
}

}  // namespace trireme::test
