// Attention in which each query sees itself and a few positions before it.
#include <fmt/format.h>

#include "tests/backend/attention_cases.hpp"

namespace trireme {
namespace {

using namespace test;
using Case = AttentionCase;

class WindowedAttention : public testing::TestWithParam<std::tuple<DType, Case>> {};

TEST_P(WindowedAttention, MatchesTheDefinition) {
  const auto& [dtype, shape] = GetParam();
  const Packed packed(shape);
  AttentionTensors actual = random_tensors(packed.p);
  poison_padding(packed.p, actual);
  compute_and_match_definition(dtype, packed.p, actual);
  expect_padding_is_zero(packed.p, actual);
}

// Windows of one position, of less than a tile, to the edge of a tile, over it, and of more than the sequence.
INSTANTIATE_TEST_SUITE_P(
    Attention, WindowedAttention,
    testing::Combine(testing::ValuesIn(test::kernel_types()),
                     testing::Values(Case{70, 70, 2, 2, 1, 8, true, 0, {}, {}, 1},      //
                                     Case{90, 90, 1, 2, 2, 12, true, 0.1, {}, {}, 5},   //
                                     Case{150, 150, 1, 2, 1, 8, true, 0, {}, {}, 63},   // as many keys as a tile has
                                     Case{150, 150, 1, 1, 1, 16, true, 0, {}, {}, 64},  //
                                     Case{70, 70, 1, 2, 2, 8, true, 0.1, {}, {}, 300},
                                     Case{40, 130, 2, 2, 2, 8, true, 0, {}, {}, 33},         // queries at the end
                                     Case{300, 300, 1, 2, 1, 16, true, 0.1, {}, {}, 100},    // keys split among tasks
                                     Case{90, 90, 2, 2, 2, 8, true, 0.2, {80, 33}, {}, 30},  // and padding
                                     Case{140, 140, 2, 2, 1, 8, true, 0.1, {}, {{20, 64, 110}, {90}}, 40})),
    [](const auto& info) {
      const Case& c = std::get<1>(info.param);
      return fmt::format("{}_{}x{}_{}_before{}{}", name_of(std::get<0>(info.param)), c.queries, c.keys, c.window,
                         c.lengths.empty() ? "" : "_padded", c.documents.empty() ? "" : "_documents");
    });

TEST(Attention, BackwardInAWindowMatchesFiniteDifference) {
  TRIREME_NEEDS_FP64_KERNELS();
  const Packed packed({5, 6, 2, 2, 1, 2, true, 0.3, {}, {{4}, {}}, 2});
  AttentionTensors t = random_tensors(packed.p);
  expect_backward_is_derivative(packed.p, t);
}

TEST(Attention, AWindowOfItselfAloneGivesTheValues) {
  const Packed packed({70, 70, 2, 2, 2, 8, true, 0, {}, {}, 0});
  AttentionTensors t = random_tensors(packed.p);
  compute(test::exact_type(), packed.p, t);
  EXPECT_EQ(t.out, t.v);
  EXPECT_EQ(t.dv, t.dout);
}

TEST(Attention, AWindowOfTheWholeSequenceGivesTheBitsOfNone) {
  const Packed none({150, 150, 1, 2, 1, 16, true, 0.1}), whole({150, 150, 1, 2, 1, 16, true, 0.1, {}, {}, 149});
  AttentionTensors a = random_tensors(none.p), b = a;
  compute(test::exact_type(), none.p, a);
  compute(test::exact_type(), whole.p, b);
  expect_equal(a, b);
}

// Tiles beyond a window are not read: numbers there that are none stay within the window.
TEST(Attention, TilesOutsideOfTheWindowAreSkipped) {
  const std::int64_t s = 384, d = 16, heads = 2, window = 32, damaged = 64;
  const Packed packed({s, s, 1, heads, 1, d, true, 0.1, {}, {}, window});
  for (const DType dtype : {test::exact_type(), DType::bf16}) {
    AttentionTensors early = random_tensors(packed.p), late = early;
    for (std::vector<double>* x : {&early.k, &early.v}) std::fill_n(x->begin(), damaged * d, std::nan(""));
    for (std::vector<double>* x : {&late.q, &late.dout}) std::fill_n(x->rbegin(), damaged * heads * d, std::nan(""));
    compute(dtype, packed.p, early);
    compute(dtype, packed.p, late);
    const auto expect_clean = [&](const std::vector<double>& x, std::int64_t begin, std::int64_t end) {
      const std::int64_t row = std::ssize(x) / s;
      for (std::int64_t i = begin * row; i < end * row; ++i) ASSERT_FALSE(std::isnan(x[i])) << "row " << i / row;
    };
    for (const std::vector<double>* x : {&early.out, &early.dq}) expect_clean(*x, 128, s);
    for (const std::vector<double>* x : {&late.dk, &late.dv}) expect_clean(*x, 0, 256);
  }
}

}  // namespace
}  // namespace trireme
