// Attention that does not see every earlier key: beyond the end of a padded sample, in another document, before a
// window.
#include "tests/backend/attention_cases.hpp"

namespace trireme {
namespace {

using namespace test;
using Case = AttentionCase;

class MaskedAttention : public testing::TestWithParam<std::tuple<DType, Case>> {};

TEST_P(MaskedAttention, MatchesTheDefinition) {
  const auto& [dtype, shape] = GetParam();
  const Packed packed(shape);
  AttentionTensors actual = random_tensors(packed.p);
  poison_padding(packed.p, actual);
  compute_and_match_definition(dtype, packed.p, actual);
  expect_padding_is_zero(packed.p, actual);
}

std::vector<std::int32_t> every_position(std::int32_t count) {
  std::vector<std::int32_t> positions(count);
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

INSTANTIATE_TEST_SUITE_P(
    PaddedAttention, MaskedAttention,
    testing::Combine(testing::ValuesIn(test::kernel_types()),
                     testing::Values(Case{70, 70, 4, 2, 2, 12, false, 0.1, {1, 0, 70, 33}},  //
                                     Case{65, 65, 4, 4, 2, 16, true, 0.5, {65, 31, 0, 64}},  // causal, grouped heads
                                     Case{40, 130, 3, 2, 2, 8, false, 0, {100, 400, 90}},    // one beyond the keys
                                     Case{100, 107, 2, 2, 2, 20, true, 0.2, {5, 104}},       // blind queries
                                     Case{300, 300, 1, 2, 1, 16, false, 0.1, {130}},         // keys split among tasks
                                     Case{40, 270, 4, 8, 8, 8, false, 0, {257, 255, 0, 269}})),  // two chunks of keys
    name_of_case);
INSTANTIATE_TEST_SUITE_P(
    PackedAttention, MaskedAttention,
    testing::Combine(
        testing::ValuesIn(test::kernel_types()),
        testing::Values(Case{70, 70, 4, 2, 2, 12, true, 0.1, {}, {{}, {1, 69}, {33, 64, 65}, every_position(70)}},
                        Case{65, 65, 2, 4, 2, 16, true, 0.5, {}, {{7, 8, 40}, {64}}},         // grouped heads
                        Case{40, 130, 2, 2, 2, 8, true, 0, {}, {{64, 95, 128}, {20, 129}}},   // queries at the end
                        Case{300, 300, 1, 2, 1, 16, true, 0.1, {}, {{10, 130, 131, 257}}},    // keys split among tasks
                        Case{90, 90, 2, 2, 2, 8, true, 0.2, {80, 33}, {{30, 64, 79}, {32}}},  // and padding
                        Case{90, 90, 2, 2, 1, 8, false, 0, {}, {{30, 64, 79}, {17}}},         // attends to later keys
                        Case{270, 270, 2, 4, 4, 8, true, 0, {}, {{255, 256}, {64, 128, 192, 256}}})),
    name_of_case);
// Biases by distance (ALiBi) with all masks and a soft cap, of a power of two heads and other numbers, and of the
// single queries of generation.
INSTANTIATE_TEST_SUITE_P(
    BiasedAttention, MaskedAttention,
    testing::Combine(testing::ValuesIn(test::kernel_types()),
                     testing::Values(Case{1, 300, 3, 4, 2, 32, false, 0, {300, 17, 0}, {}, -1, 1.5, 6},
                                     Case{1, 200, 2, 2, 2, 16, true, 0, {}, {{130}, {}}, 90, 0, 4},
                                     Case{70, 70, 2, 2, 2, 12, true, 0.1, {}, {}, -1, 0, 4},
                                     Case{65, 65, 2, 4, 2, 16, true, 0.5, {65, 31}, {}, -1, 0, 6},
                                     Case{40, 130, 2, 2, 2, 8, true, 0, {}, {{64, 95, 128}, {20, 129}}, 50, 2, 14},
                                     Case{300, 300, 1, 2, 1, 16, true, 0.1, {}, {}, -1, 0, 16},
                                     Case{1, 130, 2, 2, 1, 8, false, 0, {130, 17}, {}, -1, 0, 4})),
    name_of_case);
// One query of each text: one head of keys for each of queries, for some, and for more than a block takes; every row
// of lanes; keys of several splits, of one that ends at a bound, and of none; all masks.
INSTANTIATE_TEST_SUITE_P(DecodedAttention, MaskedAttention,
                         testing::Combine(testing::ValuesIn(test::kernel_types()),
                                          testing::Values(Case{1, 300, 3, 2, 2, 40, false, 0, {300, 0, 257}},
                                                          Case{1, 140, 2, 3, 1, 20, false, 0, {128, 129}, {}, -1, 1.5},
                                                          Case{1, 260, 2, 2, 2, 96, true, 0, {}, {{150}, {256}}},
                                                          Case{1, 150, 1, 20, 2, 72, true, 0, {}, {}, 20, 0, 24},
                                                          Case{1, 130, 1, 2, 2, 136, true},  //
                                                          Case{1, 130, 2, 9, 1, 136, false, 0, {17, 130}},
                                                          Case{1, 0, 1, 2, 2, 8, false})),
                         name_of_case);
// Soft caps with all masks, and on tensor cores' head size.
INSTANTIATE_TEST_SUITE_P(
    CappedAttention, MaskedAttention,
    testing::Combine(testing::ValuesIn(test::kernel_types()),
                     testing::Values(Case{64, 64, 2, 2, 2, 64, true, 0, {}, {}, -1, 5},
                                     Case{70, 70, 4, 2, 1, 12, false, 0.1, {1, 0, 70, 33}, {}, -1, 2},
                                     Case{90, 90, 2, 2, 1, 8, true, 0.2, {80, 33}, {{30, 64, 79}, {32}}, 20, 3},
                                     Case{40, 130, 2, 2, 2, 8, true, 0, {}, {}, 33, 2},  // queries at the end
                                     Case{
                                         300, 300, 1, 2, 1, 16, true, 0.1, {}, {}, 100, 3})),  // keys split among tasks
    name_of_case);
// Windows of one position, of less than a tile, to the edge of a tile, over it, and of more than the sequence.
INSTANTIATE_TEST_SUITE_P(
    WindowedAttention, MaskedAttention,
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
    name_of_case);

TEST(Attention, BackwardUnderMasksMatchesFiniteDifference) {
  TRIREME_NEEDS_FP64_KERNELS();
  for (const Case& shape :
       {Case{3, 4, 2, 2, 1, 2, true, 0.3, {3, 0}}, Case{3, 4, 2, 2, 1, 2, false, 0.3, {3, 0}},
        Case{5, 6, 2, 2, 1, 2, true, 0.3, {}, {{2, 3}, {4}}}, Case{5, 6, 2, 2, 1, 2, true, 0.3, {}, {{4}, {}}, 2},
        Case{5, 6, 2, 2, 1, 2, true, 0.3, {}, {{4}, {}}, -1, 1.5, 6}}) {
    const Packed packed(shape);
    AttentionTensors t = random_tensors(packed.p);
    expect_backward_is_derivative(packed.p, t);
  }
}

// With q = 0 all visible keys have the same probability, and with v their positions out is the mean of these.
TEST(Attention, PositionsBeyondTheLengthAreMasked) {
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

TEST(Attention, AWindowOfOnePositionReturnsTheValues) {
  const Packed packed({70, 70, 2, 2, 2, 8, true, 0, {}, {}, 0});
  AttentionTensors t = random_tensors(packed.p);
  compute(test::exact_type(), packed.p, t);
  EXPECT_EQ(t.out, t.v);
  EXPECT_EQ(t.dv, t.dout);
}

// Splits of the keys do not depend on the number of keys in memory, nor on other texts.
TEST(Attention, AQueryOfGenerationHasTheBitsOfItsTextAlone) {
  const auto backend = test::make_backend(2);
  for (const DType dtype : test::kernel_types()) {
    const std::int64_t heads = 4, d = 16, length = 200;
    const auto attend = [&](std::int64_t keys, std::int64_t texts) {
      const AttentionCase shape{1, keys, texts, heads, 2, d, false, 0, {static_cast<std::int32_t>(length), 310}};
      AttentionProblem p = problem_of(shape);
      p.first_query = 0;
      const Tensor lengths = make_tensor(*backend, {2}, shape.lengths);
      p.lengths = lengths.view().as<std::int32_t>();
      // Element (text, position, head, channel), as caches are laid out.
      const auto cached = [&](std::int64_t of_heads, std::int64_t positions, std::uint64_t seed) {
        std::vector<double> values = random_values(310 * of_heads * d, seed, -3, 3);
        values.resize(positions * of_heads * d);
        std::vector<double> all;
        for (std::int64_t i = 0; i < texts; ++i) all.insert(all.end(), values.begin(), values.end());
        return make_tensor(*backend, dtype, {texts, positions, of_heads, d}, all);
      };
      const Tensor q = cached(heads, 1, 1), k = cached(2, keys, 2), v = cached(2, keys, 3);
      const Tensor out = poisoned_tensor(*backend, dtype, {texts, heads, d});
      const Tensor lse = poisoned_tensor(*backend, accumulation_type(dtype), {texts, heads, 1});
      const auto of_text = [&](const Tensor& x, std::int64_t of_heads, std::int64_t positions) {
        return Heads{x, of_heads * d, positions * of_heads * d, d};
      };
      backend->attention().attention(backend->compute_stream(), p, of_text(q, heads, 1), of_text(k, 2, keys),
                                     of_text(v, 2, keys), of_text(out, heads, 1), lse);
      std::vector<double> result = values_of(*backend, out);
      result.resize(heads * d);
      return result;
    };
    EXPECT_EQ(attend(length, 1), attend(310, 2)) << name_of(dtype);
  }
}

// Tiles of another document are not read, so NaN there does not spread.
TEST(Attention, TilesOfOtherDocumentsAreSkipped) {
  const std::int64_t s = 384, d = 16, heads = 2;
  const Packed packed({s, s, 1, heads, 1, d, true, 0.1, {}, {{128, 256}}});
  for (const DType dtype : {test::exact_type(), DType::bf16}) {
    for (std::int64_t damaged = 0; damaged < 3; ++damaged) {
      AttentionTensors t = random_tensors(packed.p);
      for (std::vector<double>* x : {&t.q, &t.k, &t.v, &t.dout}) {
        const std::int64_t document = std::ssize(*x) / 3;
        std::fill_n(x->begin() + damaged * document, document, std::nan(""));
      }
      compute(dtype, packed.p, t);
      for (const std::vector<double>* x : {&t.out, &t.dq, &t.dk, &t.dv}) {
        for (std::int64_t i = 0; i < std::ssize(*x); ++i) {
          ASSERT_EQ(std::isnan((*x)[i]), i / (std::ssize(*x) / 3) == damaged)
              << name_of(dtype) << ", document " << damaged << " damaged, row " << i / (std::ssize(*x) / s);
        }
      }
    }
  }
}

// Tiles outside a window are not read, so NaN there does not spread.
TEST(Attention, TilesOutsideTheWindowAreSkipped) {
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
