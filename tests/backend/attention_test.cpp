#include "src/backend/kernels/attention.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/backend/attention_cases.hpp"

namespace trireme {
namespace {

using namespace test;

using Case = AttentionCase;

TEST(Attention, HandWorkedRows) {
  const AttentionProblem p = problem_of({2, 2, 1, 1, 1, 1});
  AttentionTensors t;
  t.q = {5, 1};
  t.k = {0, std::log(3)};
  t.v = {4, 8};
  t.dout = {10, 1};
  compute(test::exact_type(), p, t);
  const Tolerance close = tolerance(test::exact_type(), Operation::elementwise);
  // Row 0 attends only to key 0; row 1 has the scores 0 and log 3, so the probabilities 1/4 and 3/4.
  expect_close(t.out, std::vector<double>{4, 7}, close, "out");
  expect_close(t.log_sum_exp, std::vector<double>{0, std::log(4)}, close, "log_sum_exp");
  // In row 1 dp = (4, 8) with mean 7, so ds = (1/4 (4 - 7), 3/4 (8 - 7)).
  expect_close(t.dv, std::vector<double>{10.25, 0.75}, close, "dv");
  expect_close(t.dk, std::vector<double>{-0.75, 0.75}, close, "dk");
  expect_close(t.dq, std::vector<double>{0, 0.75 * std::log(3)}, close, "dq");
}

TEST(Attention, BiasesGrowWithDistanceByTheSlopeOfTheHead) {
  // Heads 2 and 3 of 6 have the slopes 2^-6 and 2^-8 of four heads; heads 4 and 5 2^-1 and 2^-3 of eight. The shift
  // halves all.
  AttentionProblem p = problem_of({3, 3, 1, 4, 4, 1, true, 0, {}, {}, -1, 0, 6});
  p.alibi_shift = 1;
  AttentionTensors t;
  t.q.assign(12, 0);
  t.k = t.v = t.dout = t.q;
  compute(test::exact_type(), p, t);
  const Tolerance close = tolerance(test::exact_type(), Operation::elementwise);
  std::vector<double> expected;
  for (const double slope : {1 / 128.0, 1 / 512.0, 1 / 4.0, 1 / 16.0}) {
    expected.insert(expected.end(),
                    {0, std::log(1 + std::exp(-slope)), std::log(1 + std::exp(-slope) + std::exp(-2 * slope))});
  }
  expect_close(t.log_sum_exp, expected, close, "log_sum_exp");
  p.alibi_heads = 5;
  EXPECT_THAT([&] { compute(test::exact_type(), p, t); },
              testing::ThrowsMessage<ShapeError>(testing::HasSubstr("biases of 5 heads for heads 2 to 6")));
}

class AttentionCases : public testing::TestWithParam<std::tuple<DType, Case>> {};

TEST_P(AttentionCases, MatchTheDefinition) {
  const auto& [dtype, shape] = GetParam();
  const AttentionProblem p = problem_of(shape);
  AttentionTensors actual = random_tensors(p);
  compute_and_match_definition(dtype, p, actual);
}

INSTANTIATE_TEST_SUITE_P(
    Attention, AttentionCases,
    testing::Combine(testing::ValuesIn(test::kernel_types()),
                     testing::Values(Case{1, 1, 1, 1, 1, 1},                  //
                                     Case{31, 31, 2, 2, 2, 8},                //
                                     Case{33, 33, 1, 3, 3, 33, true, 0.1},    //
                                     Case{64, 64, 2, 2, 2, 64},               //
                                     Case{65, 65, 2, 4, 2, 16, true, 0.5},    // grouped heads
                                     Case{70, 70, 4, 6, 1, 12, false, 0.1},   // not causal
                                     Case{1, 130, 2, 2, 2, 64},               // generation: one query
                                     Case{5, 77, 1, 4, 2, 96, true, 0.1},     // a few queries at the end
                                     Case{100, 107, 1, 2, 2, 20, true, 0.2},  // the diagonal crosses tiles oddly
                                     Case{40, 130, 3, 12, 12, 8, false},      //
                                     Case{129, 65, 1, 2, 2, 8, false, 0.1},   //
                                     Case{300, 300, 1, 2, 1, 16, true, 0.1},  // keys split among tasks
                                     Case{270, 270, 4, 8, 8, 8},              // two chunks of keys
                                     Case{1025, 1025, 1, 1, 1, 4, true, 0.1})),
    name_of_case);

TEST(Attention, BackwardMatchesFiniteDifference) {
  TRIREME_NEEDS_FP64_KERNELS();
  for (const bool causal : {true, false}) {
    const AttentionProblem p = problem_of({4, 5, 2, 2, 1, 3, causal, 0.3});
    AttentionTensors t = random_tensors(p);
    expect_backward_is_derivative(p, t);
    AttentionProblem capped = p;
    capped.soft_cap = 1.5;
    expect_backward_is_derivative(capped, t);
  }
}

TEST(Attention, AnyNumberOfThreadsGivesTheSameBits) {
  for (const Case& c : {Case{300, 300, 1, 2, 1, 16, true, 0.1}, Case{96, 96, 2, 20, 20, 8}}) {
    const AttentionProblem p = problem_of(c);
    AttentionTensors one = random_tensors(p);
    AttentionTensors two = one, three = one;
    compute(DType::fp32, p, one, 1);
    compute(DType::fp32, p, two, 2);
    compute(DType::fp32, p, three, 3);
    expect_equal(one, two);
    expect_equal(one, three);
  }
}

/// With q = 0 all probabilities of a row are equal, and with v the unit matrix out shows which of them are kept.
TEST(Attention, DropoutIsTheElementRule) {
  const double probability = 0.1;
  const AttentionProblem p = problem_of({128, 128, 2, 3, 3, 128, false, probability});
  AttentionTensors t;
  t.q.assign(128 * 2 * 3 * 128, 0);
  t.k = t.v = t.dout = t.q;
  for (std::int64_t i = 0; i < 128 * 2 * 3; ++i) t.v[i * 128 + i / 6] = 1;
  compute(test::exact_type(), p, t);
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < 128 * 2 * 3 * 128; ++i) {
    const std::int64_t key = i % 128, head = i / 128 % 3, sample = i / 384 % 2, query = i / 768;
    const bool keep = p.dropout.keeps(p.dropout.head_key(p.first_head + head), sample_numbers[sample], query, key);
    ASSERT_FLOAT_EQ(t.out[i], keep ? static_cast<double>(p.dropout.scale) / 128 : 0);
    kept += keep;
  }
  const double n = 128 * 2 * 3 * 128;
  EXPECT_NEAR(kept / n, 1 - probability, 5 * std::sqrt(probability * (1 - probability) / n));
}

TEST(Attention, EmptyInputsAreAccepted) {
  for (const Case& c : {Case{0, 0, 2, 2, 2, 8}, Case{0, 5, 2, 2, 2, 8}, Case{3, 3, 0, 2, 2, 8}}) {
    const AttentionProblem p = problem_of(c);
    AttentionTensors t = random_tensors(p);
    compute(DType::fp32, p, t);
    for (const double x : t.dk) EXPECT_EQ(x, 0);
    for (const double x : t.dv) EXPECT_EQ(x, 0);
  }
}

TEST(Attention, ARowThatSeesNoKeyIsZero) {
  for (const Case& c : {Case{3, 0, 1, 2, 2, 8, false}, Case{70, 3, 1, 1, 1, 8, true}}) {
    const AttentionProblem p = problem_of(c);
    AttentionTensors t = random_tensors(p);
    compute(test::exact_type(), p, t);
    expect_blind_rows_are_zero(p, t);
  }
}

TEST(Attention, NaNPropagates) {
  const AttentionProblem p = problem_of({40, 40, 1, 1, 1, 8});
  AttentionTensors t = random_tensors(p);
  t.k[20 * 8] = std::numeric_limits<double>::quiet_NaN();
  compute(DType::fp32, p, t);
  for (std::int64_t i = 0; i < 40; ++i) EXPECT_EQ(std::isnan(t.out[i * 8]), i >= 20) << "query " << i;
}

TEST(Attention, AHiddenNotANumberDoesNotPassTheSoftCap) {
  AttentionProblem p = problem_of({40, 40, 1, 1, 1, 8});
  p.soft_cap = 2;
  AttentionTensors t = random_tensors(p);
  t.k[20 * 8] = std::numeric_limits<double>::quiet_NaN();
  compute(DType::fp32, p, t);
  for (std::int64_t i = 0; i < 40; ++i) EXPECT_EQ(std::isnan(t.out[i * 8]), i >= 20) << "query " << i;
}

}  // namespace
}  // namespace trireme
