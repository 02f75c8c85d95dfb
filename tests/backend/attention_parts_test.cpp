// Attention whose keys are split into ranges, and copies of heads.
#include <gtest/gtest.h>

#include "tests/backend/attention_reference.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/support/test_backend.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme {
namespace {

using namespace test;

const std::vector<std::int64_t> sample_numbers = {7, (std::int64_t{3} << 32) + 5};
constexpr std::int64_t batch = 2, heads = 4, kv_heads = 2, d = 12;

AttentionProblem problem_of(std::int64_t queries, std::int64_t keys, double dropout, const std::int64_t* samples) {
  return {.queries = queries,
          .keys = keys,
          .first_query = keys - queries,
          .batch = batch,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = d,
          .scale = 1 / std::sqrt(static_cast<double>(d)),
          .dropout = {dropout, 1234, 3, DropoutSite::attention_scores, samples},
          .first_head = 2};
}

Heads heads_of(TensorView tensor, std::int64_t count) { return {tensor, batch * count * d, count * d, d}; }

/// A problem with all keys at once, its random inputs on a backend, and the expected results.
struct Whole {
  Whole(Backend& b, DType dtype, std::int64_t queries, std::int64_t keys, double dropout,
        const std::vector<std::int32_t>& padded, const std::vector<std::int32_t>& visible)
      : samples(samples_tensor(b, sample_numbers)),
        lengths(make_tensor(b, {static_cast<std::int64_t>(padded.size())}, padded)),
        first_visible(make_tensor(b, {static_cast<std::int64_t>(visible.size())}, visible)),
        problem(problem_of(queries, keys, dropout, samples.view().as<std::int64_t>())),
        on_host(problem_of(queries, keys, dropout, sample_numbers.data())),
        q(random_tensor(b, dtype, {queries, batch, heads, d}, 1, -3, 3)),
        k(random_tensor(b, dtype, {keys, batch, kv_heads, d}, 2, -3, 3)),
        v(random_tensor(b, dtype, {keys, batch, kv_heads, d}, 3)),
        dout(random_tensor(b, dtype, {queries, batch, heads, d}, 4)) {
    if (!padded.empty()) {
      problem.lengths = lengths.view().as<std::int32_t>();
      on_host.lengths = padded.data();
    }
    if (!visible.empty()) {
      problem.first_visible = first_visible.view().as<std::int32_t>();
      on_host.first_visible = visible.data();
    }
    expected.q = values_of(b, q);
    expected.k = values_of(b, k);
    expected.v = values_of(b, v);
    expected.dout = values_of(b, dout);
    poison_padding(on_host, expected);
    q = make_tensor(b, dtype, {queries, batch, heads, d}, expected.q);
    k = make_tensor(b, dtype, {keys, batch, kv_heads, d}, expected.k);
    v = make_tensor(b, dtype, {keys, batch, kv_heads, d}, expected.v);
    dout = make_tensor(b, dtype, {queries, batch, heads, d}, expected.dout);
    reference_attention(on_host, expected);
  }
  Tensor samples, lengths, first_visible;
  AttentionProblem problem, on_host;
  Tensor q, k, v, dout;
  AttentionTensors expected;
};

using KeyRanges = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// Expects the keys in `ranges` to give what the whole gives, forward and backward.
void expect_blocks_join(Backend& b, DType dtype, const Whole& whole, const KeyRanges& ranges) {
  const DType accumulation = accumulation_type(dtype);
  const std::int64_t queries = whole.problem.queries, keys = whole.problem.keys;
  Stream& stream = b.compute_stream();
  const Tensor sums = poisoned_tensor(b, accumulation, {queries, batch, heads, d});
  const Tensor out = poisoned_tensor(b, dtype, {queries, batch, heads, d});
  const Tensor lse(b, accumulation, {batch, heads, queries}), row_dot(b, accumulation, {batch, heads, queries});
  b.elementwise().fill(stream, -std::numeric_limits<double>::infinity(), lse);
  const auto for_blocks = [&](auto&& visit) {
    for (const auto& [begin, end] : ranges) {
      AttentionProblem block = whole.problem;
      block.keys = end - begin;
      block.first_key = begin;
      block.results = AttentionResults::merge;
      visit(block, begin);
    }
  };
  for_blocks([&](const AttentionProblem& block, std::int64_t begin) {
    b.attention().attention(stream, block, heads_of(whole.q, heads), heads_of(whole.k, kv_heads).from(begin),
                            heads_of(whole.v, kv_heads).from(begin), heads_of(sums, heads), lse);
  });
  const Tolerance close = tolerance(accumulation, Operation::sum);
  expect_close(values_of(b, sums), whole.expected.out, close, "out");
  expect_close(values_of(b, lse), whole.expected.log_sum_exp, close, "log_sum_exp");

  b.attention().copy_heads(stream, {queries, batch, heads, d}, heads_of(sums, heads), heads_of(out, heads));
  AttentionTensors gradients = whole.expected;
  gradients.out = values_of(b, out);
  expect_close(gradients.out, whole.expected.out, tolerance(dtype, Operation::sum), "rounded out");
  reference_attention_backward(whole.on_host, gradients);
  const Tensor dq(b, accumulation, {queries, batch, heads, d});
  const Tensor dk(b, accumulation, {keys, batch, kv_heads, d}), dv(b, accumulation, {keys, batch, kv_heads, d});
  for (const Tensor* tensor : {&dq, &dk, &dv}) b.elementwise().fill(stream, 0, *tensor);
  for_blocks([&](const AttentionProblem& block, std::int64_t begin) {
    b.attention().attention_backward(stream, block, heads_of(whole.dout, heads), heads_of(whole.q, heads),
                                     heads_of(whole.k, kv_heads).from(begin), heads_of(whole.v, kv_heads).from(begin),
                                     heads_of(out, heads), lse, row_dot, heads_of(dq, heads),
                                     heads_of(dk, kv_heads).from(begin), heads_of(dv, kv_heads).from(begin));
  });
  expect_close(values_of(b, dq), gradients.dq, close, "dq");
  expect_close(values_of(b, dk), gradients.dk, close, "dk");
  expect_close(values_of(b, dv), gradients.dv, close, "dv");
}

class AttentionParts : public testing::TestWithParam<DType> {};

// Parts begin anywhere, in any order; one lies wholly behind the first queries.
TEST_P(AttentionParts, KeysInPartsJoinToTheWhole) {
  const auto backend = test::make_backend(2);
  const KeyRanges splits[] = {{{0, 170}}, {{0, 64}, {64, 128}, {128, 170}}, {{128, 170}, {0, 3}, {3, 77}, {77, 128}}};
  using List = std::vector<std::int32_t>;
  const List all, padded = {100, 10}, packed = first_visible_of({{2, 64, 99, 128}, {160}}, 20, 150);
  for (const auto& [dropout, lengths, visible] :
       {std::tuple{0.0, all, all}, {0.2, all, all}, {0.2, padded, all}, {0.2, all, packed}}) {
    const Whole whole(*backend, GetParam(), 150, 170, dropout, lengths, visible);
    for (const KeyRanges& ranges : splits) {
      if (!(lengths.empty() && visible.empty()) && ranges.size() < 4) continue;  // saves time
      SCOPED_TRACE(testing::Message() << ranges.size() << " parts, dropout " << dropout
                                      << (lengths.empty() ? "" : ", padded") << (visible.empty() ? "" : ", packed"));
      expect_blocks_join(*backend, GetParam(), whole, ranges);
    }
  }
}

// A later range without keys for a query leaves the result of the range before.
TEST_P(AttentionParts, ANotANumberOfOnePartIsNotHidden) {
  const DType dtype = GetParam(), accumulation = accumulation_type(dtype);
  const auto backend = test::make_backend(1);
  Backend& b = *backend;
  const std::int64_t length = 8;
  std::vector<double> keys = random_values(length * batch * kv_heads * d, 1);
  for (std::int64_t i = 0; i < batch * kv_heads * d; ++i) keys[i] = std::nan("");
  const Tensor q = random_tensor(b, dtype, {length, batch, heads, d}, 2);
  const Tensor k = make_tensor(b, dtype, {length, batch, kv_heads, d}, keys);
  const Tensor v = random_tensor(b, dtype, {length, batch, kv_heads, d}, 3);
  const Tensor sums(b, accumulation, {length, batch, heads, d});
  b.elementwise().fill(b.compute_stream(), 0, sums);
  const Tensor lse(b, accumulation, {batch, heads, length});
  b.elementwise().fill(b.compute_stream(), -std::numeric_limits<double>::infinity(), lse);
  for (const std::int64_t begin : {std::int64_t{0}, length / 2}) {
    AttentionProblem block = problem_of(length, length / 2, 0, nullptr);
    block.first_query = 0;
    block.first_key = begin;
    block.results = AttentionResults::merge;
    b.attention().attention(b.compute_stream(), block, heads_of(q, heads), heads_of(k, kv_heads).from(begin),
                            heads_of(v, kv_heads).from(begin), heads_of(sums, heads), lse);
  }
  for (const Tensor* result : {&sums, &lse}) {
    for (const double value : values_of(b, *result)) ASSERT_TRUE(std::isnan(value));
  }
}

TEST_P(AttentionParts, HeadsAreCopiedAndRounded) {
  const DType dtype = GetParam(), accumulation = accumulation_type(dtype);
  const auto backend = test::make_backend(2);
  Backend& b = *backend;
  for (const auto& [from_type, to_type] : {std::pair{dtype, dtype}, {dtype, accumulation}, {accumulation, dtype}}) {
    // The second of three heads to the first of two.
    const Tensor from = random_tensor(b, from_type, {5, batch, 3, d}, 1);
    const Tensor to = random_tensor(b, to_type, {5, batch, 2, d}, 2);
    std::vector<double> expected = values_of(b, to);
    const std::vector<double> given = values_of(b, converted(b, from, to_type));
    for (std::int64_t row = 0; row < 5 * batch; ++row) {
      for (std::int64_t c = 0; c < d; ++c) expected[row * 2 * d + c] = given[(row * 3 + 1) * d + c];
    }
    ConstHeads source = heads_of(from, 3);
    source.data = ConstTensorView(source.data.data() + d * size_of(from_type), from_type, source.data.shape());
    b.attention().copy_heads(b.compute_stream(), {5, batch, 1, d}, source, heads_of(to, 2));
    EXPECT_EQ(values_of(b, to), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Attention, AttentionParts, testing::ValuesIn(test::kernel_types()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(Attention, RefusesResultsOfAnotherType) {
  const auto backend = test::make_backend(1);
  const Tensor x = poisoned_tensor(*backend, DType::bf16, {1, batch, heads, d});
  const Tensor lse = poisoned_tensor(*backend, DType::fp32, {batch, heads, 1});
  AttentionProblem problem = problem_of(1, 1, 0, nullptr);
  problem.results = AttentionResults::merge;
  EXPECT_THROW(backend->attention().attention(backend->compute_stream(), problem, heads_of(x, heads),
                                              heads_of(x, kv_heads), heads_of(x, kv_heads), heads_of(x, heads), lse),
               ShapeError)
      << "sums in bf16";
  EXPECT_THROW(
      backend->attention().copy_heads(backend->compute_stream(), {1, batch, heads, d}, heads_of(x, heads),
                                      heads_of(poisoned_tensor(*backend, DType::fp16, {1, batch, heads, d}), heads)),
      ShapeError);
}

}  // namespace
}  // namespace trireme
