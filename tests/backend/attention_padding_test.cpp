// Attention over samples that are shorter than the batch's sequence.
#include <fmt/format.h>

#include "tests/backend/attention_cases.hpp"

namespace trireme {
namespace {

using namespace test;
using Case = AttentionCase;

AttentionTensors tensors_with_poisoned_padding(const AttentionProblem& p) {
  AttentionTensors t = random_tensors(p);
  poison_padding(p, t);
  return t;
}

class PaddedAttention : public testing::TestWithParam<std::tuple<DType, Case>> {};

TEST_P(PaddedAttention, MatchesTheDefinition) {
  const auto& [dtype, shape] = GetParam();
  const AttentionProblem p = problem_of(shape);
  AttentionTensors actual = tensors_with_poisoned_padding(p);
  compute_and_match_definition(dtype, p, actual);
  expect_padding_is_zero(p, actual);
}

INSTANTIATE_TEST_SUITE_P(
    Attention, PaddedAttention,
    testing::Combine(testing::ValuesIn(test::kernel_types()),
                     testing::Values(Case{70, 70, 4, 2, 2, 12, false, 0.1, {1, 0, 70, 33}},  //
                                     Case{65, 65, 4, 4, 2, 16, true, 0.5, {65, 31, 0, 64}},  // causal, grouped heads
                                     Case{40, 130, 3, 2, 2, 8, false, 0, {100, 400, 90}},    // one beyond the keys
                                     Case{100, 107, 2, 2, 2, 20, true, 0.2, {5, 104}},       // blind queries
                                     Case{300, 300, 1, 2, 1, 16, false, 0.1, {130}},         // keys split among tasks
                                     Case{40, 270, 4, 8, 8, 8, false, 0, {257, 255, 0, 269}})),  // two chunks of keys
    [](const auto& info) {
      const Case& c = std::get<1>(info.param);
      return fmt::format("{}_{}x{}_of_{}{}", name_of(std::get<0>(info.param)), c.queries, c.keys,
                         fmt::join(c.lengths, "_"), c.causal ? "_causal" : "");
    });

/// The first `positions` of one sample; `row` elements are one position of it.
std::vector<double> rows_of_sample(const std::vector<double>& dense, std::int64_t batch, std::int64_t row,
                                   std::int64_t sample, std::int64_t positions) {
  std::vector<double> own;
  for (std::int64_t i = 0; i < positions; ++i) {
    const auto begin = dense.begin() + (i * batch + sample) * row;
    own.insert(own.end(), begin, begin + row);
  }
  return own;
}

TEST(Attention, APaddedSampleGivesWhatItsOwnKeysAloneGive) {
  for (const bool causal : {true, false}) {
    const std::int64_t s = 70, d = 16, heads = 4, kv_heads = 2;
    const Case padded{s, s, 4, heads, kv_heads, d, causal, 0.2, {33, 70, 64, 1}};
    const AttentionProblem batch = problem_of(padded);
    AttentionTensors all = tensors_with_poisoned_padding(batch);
    const AttentionTensors given = all;
    compute(test::exact_type(), batch, all);
    for (std::int64_t sample = 0; sample < batch.batch; ++sample) {
      SCOPED_TRACE(fmt::format("sample {}, causal {}", sample, causal));
      const std::int64_t length = padded.lengths[sample];
      const auto of_queries = [&](const std::vector<double>& x) {
        return rows_of_sample(x, 4, heads * d, sample, length);
      };
      const auto of_keys = [&](const std::vector<double>& x) {
        return rows_of_sample(x, 4, kv_heads * d, sample, length);
      };
      AttentionProblem alone = batch;
      alone.batch = 1;
      alone.queries = alone.keys = length;
      alone.lengths = nullptr;
      alone.dropout.samples = sample_numbers.data() + sample;
      AttentionTensors own;
      own.q = of_queries(given.q);
      own.dout = of_queries(given.dout);
      own.k = of_keys(given.k);
      own.v = of_keys(given.v);
      compute(test::exact_type(), alone, own);
      EXPECT_EQ(own.out, of_queries(all.out));
      std::vector<double> log_sum_exp;
      for (std::int64_t head = 0; head < heads; ++head) {
        const auto row = all.log_sum_exp.begin() + (sample * heads + head) * s;
        log_sum_exp.insert(log_sum_exp.end(), row, row + length);
      }
      EXPECT_EQ(own.log_sum_exp, log_sum_exp);
      const Tolerance close = tolerance(test::exact_type(), Operation::sum);
      expect_close(own.dq, of_queries(all.dq), close, "dq");
      expect_close(own.dk, of_keys(all.dk), close, "dk");
      expect_close(own.dv, of_keys(all.dv), close, "dv");
    }
  }
}

TEST(Attention, BackwardOfPaddedSamplesMatchesFiniteDifference) {
  TRIREME_NEEDS_FP64_KERNELS();
  for (const bool causal : {true, false}) {
    const Case shape{3, 4, 2, 2, 1, 2, causal, 0.3, {3, 0}};
    const AttentionProblem p = problem_of(shape);
    AttentionTensors t = random_tensors(p);
    expect_backward_is_derivative(p, t);
  }
}

TEST(Attention, ASampleOfPaddingAloneIsZero) {
  for (const bool causal : {true, false}) {
    const Case shape{70, 70, 1, 2, 1, 8, causal, 0.1, {0}};
    const AttentionProblem p = problem_of(shape);
    for (const DType dtype : {test::exact_type(), DType::bf16}) {
      AttentionTensors t = tensors_with_poisoned_padding(p);
      compute(dtype, p, t);
      for (const double x : t.log_sum_exp) ASSERT_EQ(x, -std::numeric_limits<double>::infinity());
      for (const std::vector<double>* x : {&t.out, &t.dq, &t.dk, &t.dv}) {
        for (const double value : *x) ASSERT_EQ(value, 0);
      }
    }
  }
}

// With q = 0 all visible keys have the same probability, and with v their positions out is the mean of these.
TEST(Attention, EachPlaceBehindTheLengthIsHidden) {
  const std::int64_t s = 67;
  for (std::int32_t length = 1; length <= s; ++length) {
    const Case shape{s, s, 2, 1, 1, 1, false, 0, {length, static_cast<std::int32_t>(s) + 1 - length}};
    const AttentionProblem p = problem_of(shape);
    AttentionTensors t;
    t.q.assign(s * 2, 0);
    t.k = t.dout = t.v = t.q;
    for (std::int64_t i = 0; i < s * 2; ++i) t.v[i] = static_cast<double>(i / 2);
    compute(test::exact_type(), p, t);
    for (std::int64_t i = 0; i < s * 2; ++i) {
      const std::int32_t own = shape.lengths[i % 2];
      ASSERT_FLOAT_EQ(t.out[i], i / 2 < own ? (own - 1) / 2.0 : 0) << "sample of " << own;
    }
  }
}

}  // namespace
}  // namespace trireme
