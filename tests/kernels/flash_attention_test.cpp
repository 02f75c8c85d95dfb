// Attention on tensor cores, against the definition in fp64.
#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/flash_attention_case.hpp"

namespace trireme {
namespace {

using namespace test;

using Case = AttentionCase;

class FlashAttention : public testing::TestWithParam<std::tuple<DType, Case>> {};

TEST_P(FlashAttention, MatchesTheDefinition) {
  const auto& [dtype, shape] = GetParam();
  // Threads run as numbered and in another order, with late and early copies; by warps and by warp groups.
  for (const int variant : {1, 2}) {
    const auto backend = test::make_backend(variant);
    use_warp_groups(backend->attention(), variant == 2);
    const GivenAttention given(*backend, dtype, shape, 0);
    const AttentionTensors actual = compute(given);
    AttentionTensors expected = given.reference();
    const Tolerance close = tolerance(dtype, Operation::rounded_sum);
    expect_close(actual.out, expected.out, close, "out");
    expect_close(actual.log_sum_exp, expected.log_sum_exp, tolerance(DType::fp32, Operation::sum), "log_sum_exp");
    expected.out = actual.out;
    given.reference_backward(expected);
    expect_padding_is_zero(given.on_host(), actual);
    expect_close(actual.dv, expected.dv, close, "dv");
    // With a single key they are the rounding error of a difference that should be 0.
    if (shape.keys == 1) continue;
    expect_close(actual.dq, expected.dq, close, "dq");
    expect_close(actual.dk, expected.dk, close, "dk");
  }
}

// Both types in every kernel, also padded; the ways that sizes can be, in one of them.
INSTANTIATE_TEST_SUITE_P(Kernels, FlashAttention,
                         testing::Combine(testing::Values(DType::bf16, DType::fp16),
                                          testing::Values(Case{33, 33, 1, 2, 2, 128, true, 0.1},   //
                                                          Case{130, 130, 2, 2, 1, 64, true, 0.2},  // grouped heads
                                                          Case{65, 65, 1, 3, 1, 96, false, 0.1},   // not causal
                                                          Case{130, 130, 3, 1, 1, 96, false, 0, {0, 47, 129}},
                                                          Case{80, 80, 2, 1, 1, 128, true, 0, {80, 50}},
                                                          Case{70, 70, 2, 2, 1, 192, true, 0.1},  // latent attention
                                                          Case{35, 66, 1, 1, 1, 192, false, 0, {50}})),
                         name_of_case);
// A tile has 64 keys, of which each warp has 16 in the gradient of keys.
INSTANTIATE_TEST_SUITE_P(
    Padding, FlashAttention,
    testing::Combine(
        testing::Values(DType::bf16),
        testing::Values(Case{130, 130, 11, 1, 1, 64, false, 0, {1, 0, 130, 31, 33, 63, 64, 65, 128, 129, 500}},
                        Case{130, 130, 3, 2, 1, 64, true, 0.1, {100, 16, 129}},  // more queries than keys
                        Case{70, 200, 2, 1, 1, 96, true, 0.2, {140, 199}},       // a diagonal that ends in the padding
                        Case{1, 200, 3, 2, 2, 128, false, 0.1, {17, 192, 193}})),
    name_of_case);
// Documents end at and next to the bounds of tiles of keys and queries, of blocks and of warps.
INSTANTIATE_TEST_SUITE_P(
    Documents, FlashAttention,
    testing::Combine(
        testing::Values(DType::bf16),
        testing::Values(Case{300, 300, 3, 2, 1, 64, true, 0.1, {}, {{1, 64, 65, 127, 200}, {16, 128, 256}, {299}}},
                        Case{200, 200, 2, 1, 1, 128, true, 0.1, {}, {{70, 129, 192}, {48, 64, 112}}},
                        Case{150, 150, 1, 2, 1, 192, true, 0.1, {}, {{70, 129}}},
                        Case{90, 250, 2, 1, 1, 64, true, 0, {}, {{70, 192, 230}, {100, 249}}},  // queries at the end
                        Case{140, 140, 2, 1, 1, 64, true, 0, {130, 70}, {{60, 100}, {64}}},     // and padding
                        Case{140, 140, 2, 1, 1, 96, false, 0.1, {}, {{60, 100}, {64}}})),       // not causal
    name_of_case);
// Windows of one key before, within a tile of queries, to the edge of a tile of keys, over it, and over the sequence.
INSTANTIATE_TEST_SUITE_P(
    Windows, FlashAttention,
    testing::Combine(testing::Values(DType::bf16),
                     testing::Values(Case{70, 70, 1, 1, 1, 64, true, 0.1, {}, {}, 1},
                                     Case{140, 140, 1, 2, 1, 64, true, 0, {}, {}, 9},
                                     Case{140, 140, 1, 1, 1, 96, true, 0.1, {}, {}, 31},
                                     Case{200, 200, 1, 1, 1, 128, true, 0.1, {}, {}, 63},
                                     Case{200, 200, 1, 1, 1, 64, true, 0, {}, {}, 64},
                                     Case{300, 300, 1, 2, 1, 64, true, 0.1, {}, {}, 130},
                                     Case{70, 70, 1, 1, 1, 96, true, 0, {}, {}, 500},
                                     Case{90, 250, 2, 1, 1, 64, true, 0, {}, {}, 40},          // queries at the end
                                     Case{140, 140, 2, 1, 1, 64, true, 0, {130, 70}, {}, 50},  // and padding
                                     Case{140, 140, 2, 1, 1, 64, true, 0.1, {}, {{60, 100}, {64}}, 33})),
    name_of_case);
// Biases by distance, of heads whose numbers are no power of two, with each mask; the last is of generation.
INSTANTIATE_TEST_SUITE_P(
    Biases, FlashAttention,
    testing::Combine(testing::Values(DType::bf16),
                     testing::Values(Case{130, 130, 2, 2, 1, 64, true, 0.2, {}, {}, -1, 0, 4},
                                     Case{90, 200, 1, 3, 1, 96, true, 0, {}, {{70, 150}}, 60, 0, 6},
                                     Case{70, 70, 2, 1, 1, 128, true, 0.1, {70, 50}, {}, -1, 0, 12},
                                     Case{1, 200, 3, 2, 2, 64, false, 0, {17, 192, 193}, {}, -1, 0, 8})),
    name_of_case);
INSTANTIATE_TEST_SUITE_P(Sizes, FlashAttention,
                         testing::Combine(testing::Values(DType::bf16),
                                          testing::Values(Case{0, 0, 2, 2, 1, 64},                    //
                                                          Case{31, 31, 0, 1, 1, 64},                  // no samples
                                                          Case{0, 40, 1, 1, 1, 64, false},            // no queries
                                                          Case{1, 1, 2, 2, 2, 96},                    //
                                                          Case{1, 3, 1, 1, 1, 64},                    //
                                                          Case{31, 31, 2, 2, 2, 96},                  //
                                                          Case{1, 200, 2, 2, 2, 64},                  // generation
                                                          Case{5, 77, 1, 4, 2, 128, true, 0.1},       // at the end
                                                          Case{70, 200, 1, 1, 1, 128, false},         //
                                                          Case{300, 129, 1, 1, 1, 96, false, 0.5})),  //
                         name_of_case);

TEST(FlashAttentionLimits, UnsupportedProblemsUseTheOtherKernels) {
  const auto backend = test::make_backend(1);
  const GivenAttention given(*backend, DType::bf16, {8, 8, 1, 2, 2, 64, true, 0.1}, 1);
  const AttentionProblem& problem = given.problem;
  const Heads q = given.queries(given.q);
  EXPECT_TRUE(cuda::takes_flash_attention(problem, {q}));
  const auto supported_with = [&](auto&& change) {
    AttentionProblem changed = problem;
    Heads heads = q;
    change(changed, heads);
    return cuda::takes_flash_attention(changed, {q, heads});
  };
  EXPECT_TRUE(supported_with([](auto&, Heads& heads) { heads.position_stride = (std::int64_t{1} << 31) - 8; }));
  EXPECT_FALSE(supported_with([](auto&, Heads& heads) { heads.position_stride = std::int64_t{1} << 31; }));
  EXPECT_FALSE(supported_with([](auto&, Heads& heads) { heads.position_stride += 4; }));
  EXPECT_FALSE(supported_with([](auto&, Heads& heads) { heads.sample_stride += 4; }));
  EXPECT_FALSE(supported_with([](auto&, Heads& heads) { heads.head_stride += 4; }));
  EXPECT_FALSE(supported_with([](AttentionProblem& changed, auto&) { changed.head_dim = 72; }));
  EXPECT_FALSE(supported_with([](AttentionProblem& changed, auto&) { changed.first_key = 4; }));
}

/// Type, and whether by the products of warp groups where the device has them.
class FlashAttentionTypes : public testing::TestWithParam<std::tuple<DType, bool>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  std::unique_ptr<Backend> make_backend(int variant) const {
    std::unique_ptr<Backend> backend = test::make_backend(variant);
    use_warp_groups(backend->attention(), std::get<1>(GetParam()));
    return backend;
  }
};

// The last keys come first, and after the first queries.
TEST_P(FlashAttentionTypes, PartsOfTheKeysCombineToFullAttention) {
  const KeyRanges ranges = {{128, 170}, {0, 8}, {8, 80}, {80, 128}};
  const auto backend = make_backend(2);
  for (const Case& shape :
       {Case{150, 170, 1, 4, 2, 64}, Case{150, 170, 1, 4, 2, 96, true, 0.2},
        Case{90, 170, 2, 1, 1, 64, false, 0.2, {70, 0}}, Case{150, 170, 1, 1, 1, 64, true, 0.2, {}, {{30, 64, 129}}},
        Case{150, 170, 1, 1, 1, 64, true, 0.2, {}, {}, 70}}) {
    const GivenAttention given(*backend, dtype(), shape, 0);
    SCOPED_TRACE(fmt::format("heads of {}, {} samples", shape.head_dim, shape.batch));
    for_blocks(given, ranges, [&](const AttentionProblem& block, std::int64_t begin) {
      EXPECT_TRUE(cuda::takes_flash_attention(
          block, {given.queries(given.q), given.keys(given.k).from(begin), given.keys(given.v).from(begin)}));
    });
    expect_parts_join(given, ranges, tolerance(dtype(), Operation::rounded_sum));
  }
}

// Every score of a query is the same: its largest never changes, and values that cancel leave nothing.
TEST_P(FlashAttentionTypes, TilesWithTheSameMaximumAreAddedWithoutRescaling) {
  const auto backend = make_backend(1);
  const std::int64_t queries = 128, keys = 640, d = 64;
  GivenAttention given(*backend, dtype(), {queries, keys, 1, 1, 1, d, false}, 1);
  std::vector<double> k(keys * d), v(keys * d);
  const std::vector<double> key = random_values(d, 2, -3, 3);
  for (std::int64_t i = 0; i < keys * d; ++i) {
    k[i] = key[i % d];
    v[i] = i < keys / 2 * d ? 1 : -1;
  }
  given.k = make_tensor(*backend, dtype(), {keys, 1, 1, d}, k);
  given.v = make_tensor(*backend, dtype(), {keys, 1, 1, d}, v);
  for (const double value : compute(given).out) ASSERT_EQ(value, 0);
}

TEST_P(FlashAttentionTypes, ARowThatSeesNoKeyIsZero) {
  const auto backend = make_backend(1);
  GivenAttention behind(*backend, dtype(), {70, 3, 1, 2, 1, 64}, 1),
      none(*backend, dtype(), {40, 0, 1, 2, 1, 64, false}, 1);
  behind.problem.first_key = 67;
  for (const GivenAttention* given : {&behind, &none}) {
    expect_blind_rows_are_zero(given->problem, compute(*given));
  }
}

// Zeros instead of padding, if they were visible, would have the largest of all scores, with probabilities beyond fp32.
TEST_P(FlashAttentionTypes, PaddingIsHiddenWhereAllScoresAreFarBelowZero) {
  const auto backend = make_backend(1);
  GivenAttention given(*backend, dtype(), {70, 70, 1, 1, 1, 64, false, 0, {40}}, 1);
  given.q = make_tensor(*backend, dtype(), {70, 1, 1, 64}, random_values(70 * 64, 2, 7, 9));
  std::vector<double> keys = random_values(70 * 64, 3, -9, -7);
  for_padding(given.on_host(), 0, 1, keys, [](double& x) { x = std::nan(""); });
  given.k = make_tensor(*backend, dtype(), {70, 1, 1, 64}, keys);
  const AttentionTensors actual = compute(given), expected = given.reference();
  expect_close(actual.out, expected.out, tolerance(dtype(), Operation::rounded_sum), "out");
  expect_close(actual.log_sum_exp, expected.log_sum_exp, tolerance(DType::fp32, Operation::sum), "log_sum_exp");
  for (const std::vector<double>* x : {&actual.dq, &actual.dk, &actual.dv}) {
    for (const double value : *x) ASSERT_TRUE(std::isfinite(value));
  }
}

TEST_P(FlashAttentionTypes, APaddedSampleGivesTheBitsOfItsOwnPositionsAlone) {
  const auto backend = make_backend(2);
  const std::int64_t length = 100;
  for (const auto& [d, causal] : {std::pair{64, false}, {96, true}, {128, false}}) {
    const GivenAttention padded(*backend, dtype(), {140, 140, 1, 1, 1, d, causal, 0.1, {length}}, 1);
    GivenAttention alone(*backend, dtype(), {140, 140, 1, 1, 1, d, causal, 0.1}, 1);
    alone.problem.queries = alone.problem.keys = length;
    AttentionTensors actual = compute(padded), expected = compute(alone);
    expect_padding_is_zero(padded.on_host(), actual);
    for (AttentionTensors* t : {&actual, &expected}) {
      t->log_sum_exp.resize(length);
      for (std::vector<double>* x : {&t->out, &t->dq, &t->dk, &t->dv}) x->resize(length * d);
    }
    expect_equal(actual, expected);
  }
}

TEST_P(FlashAttentionTypes, NaNPropagates) {
  const auto backend = make_backend(1);
  for (const double dropout : {0.0, 0.5}) {
    GivenAttention given(*backend, dtype(), {140, 140, 1, 1, 1, 64, true, dropout}, 1);
    std::vector<double> keys = values_of(*backend, given.k);
    keys[100 * 64] = std::numeric_limits<double>::quiet_NaN();
    given.k = make_tensor(*backend, dtype(), {140, 1, 1, 64}, keys);
    const AttentionTensors t = compute(given);
    for (std::int64_t i = 0; i < 140; ++i) EXPECT_EQ(std::isnan(t.out[i * 64]), i >= 100) << "query " << i;
  }
}

TEST_P(FlashAttentionTypes, NaNOfOnePartPropagates) {
  const auto backend = make_backend(1);
  expect_nan_of_one_part_is_not_hidden(*backend, dtype(), {80, 80, 1, 1, 1, 64});
}

TEST_P(FlashAttentionTypes, RunsGiveTheSameBits) {
  std::vector<AttentionTensors> results;
  for (const int variant : {1, 2, 3}) {
    const auto backend = make_backend(variant);
    results.push_back(compute(GivenAttention(*backend, dtype(), {140, 140, 1, 2, 1, 64, true, 0.1}, 1)));
  }
  for (const AttentionTensors& other : results) expect_equal(other, results[0]);
}

TEST_P(FlashAttentionTypes, MasksInMemoryGiveTheBitsOfMasksDrawnTwice) {
  const auto backend = make_backend(1);
  for (const int d : {64, 96, 128}) {
    for (const Case& shape : {Case{140, 170, 2, 2, 1, d, true, 0.1}, Case{70, 200, 1, 1, 1, d, false, 0.5, {130}}}) {
      const GivenAttention given(*backend, dtype(), shape, 1);
      EXPECT_GT(kept_mask_bytes(given.problem), 0);
      expect_equal(compute(given), compute(given, /*draws_twice=*/true, std::get<1>(GetParam())));
    }
  }
  GivenAttention large(*backend, dtype(), {16, 16, 1, 1, 1, 64, true, 0.1}, 1);
  large.problem.queries = large.problem.keys = 1 << 16;
  EXPECT_EQ(kept_mask_bytes(large.problem), 0) << "more than 256 MiB";
}

std::string name_of_form(const testing::TestParamInfo<std::tuple<DType, bool>>& info) {
  return std::string(name_of(std::get<0>(info.param))) + (std::get<1>(info.param) ? "_groups" : "");
}
INSTANTIATE_TEST_SUITE_P(Kernels, FlashAttentionTypes,
                         testing::Values(std::tuple{DType::bf16, false}, std::tuple{DType::fp16, false},
                                         std::tuple{DType::bf16, true}),
                         name_of_form);

}  // namespace
}  // namespace trireme
