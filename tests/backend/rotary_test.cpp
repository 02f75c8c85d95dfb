#include "src/backend/kernels/rotary.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "tests/support/random_tensor.hpp"
#include "tests/support/test_backend.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme {
namespace {

using namespace test;

/// Heads [positions, batch, projections, heads, d], of which number `projection` is rotated.
struct Case {
  std::int64_t positions = 1, batch = 1, heads = 1, d = 2;
  std::int64_t projections = 1, projection = 0;
  Positions at;
  RotaryEmbedding rotary{2, 10000};
  std::vector<std::int32_t> ids{};  ///< [positions, batch] instead of `at`; none: `at`
  std::int64_t numel() const { return positions * batch * projections * heads * d; }
};

/// `values`, rounded to the type, after a rotation.
std::vector<double> rotated(DType dtype, const Case& c, std::vector<double>& values,
                            Rotation rotation = Rotation::forward, int threads = 2) {
  const auto backend = test::make_backend(threads);
  Backend& b = *backend;
  const Tensor x = make_tensor(b, dtype, {c.positions, c.batch, c.projections, c.heads, c.d}, values);
  values = values_of(b, x);
  const std::int64_t row = c.projections * c.heads * c.d;
  const TensorView projection(
      x.view().data() + static_cast<std::int64_t>(size_of(dtype)) * c.projection * c.heads * c.d, dtype,
      x.view().shape());
  const Tensor ids = make_tensor(b, {std::ssize(c.ids)}, c.ids);
  b.rotary().rotate(b.compute_stream(), c.rotary,
                    {{projection, c.batch * row, row, c.d},
                     c.positions,
                     c.batch,
                     c.heads,
                     c.at,
                     c.ids.empty() ? nullptr : ids.view().as<std::int32_t>()},
                    rotation);
  return values_of(b, x);
}

/// Computes by the definition, in fp64.
std::vector<double> reference(const Case& c, const std::vector<double>& values, Rotation rotation) {
  std::vector<double> result = values;
  const std::int64_t half = c.rotary.channels / 2;
  for (std::int64_t row = 0; row < c.positions * c.batch; ++row) {
    for (std::int64_t head = 0; head < c.heads; ++head) {
      const std::size_t at = ((row * c.projections + c.projection) * c.heads + head) * c.d;
      for (std::int64_t i = 0; i < half; ++i) {
        const double position = static_cast<double>(c.ids.empty() ? c.at[row / c.batch] : c.ids[row]);
        double angle = position * std::pow(c.rotary.base, -2.0 * i / c.rotary.channels);
        if (rotation == Rotation::backward) angle = -angle;
        result[at + i] = values[at + i] * std::cos(angle) - values[at + i + half] * std::sin(angle);
        result[at + i + half] = values[at + i + half] * std::cos(angle) + values[at + i] * std::sin(angle);
      }
    }
  }
  return result;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

TEST(Rotary, HandWorkedHead) {
  // Base 100 and four channels: the pairs (0, 2) and (1, 3) turn by 1 and 1/10 a position.
  const Case c{.d = 6, .at = {3}, .rotary = {4, 100}};
  std::vector<double> x = {1, 2, 10, 20, 7, 8};
  const double s = std::sin(3.0), k = std::cos(3.0), s_slow = std::sin(0.3), k_slow = std::cos(0.3);
  expect_close(rotated(test::exact_type(), c, x),
               std::vector<double>{k - 10 * s, 2 * k_slow - 20 * s_slow, 10 * k + s, 20 * k_slow + 2 * s_slow, 7, 8},
               tolerance(test::exact_type(), Operation::elementwise), "x");
}

TEST(Rotary, HandWorkedHeadWithScaledFrequencies) {
  // The pair (0, 2) keeps its frequency 1. Of 1/10, the pair (1, 3) keeps a quarter: 1/10 (1/4 + 3/4 / 4).
  const RotaryEmbedding by_pair{4, 100, 4, {1, -0.75, 0}, 2}, by_frequency{4, 100, 4, {0, 0, 2.5}, 2};
  for (const RotaryEmbedding& rotary : {by_pair, by_frequency}) {
    const Case c{.d = 4, .at = {3}, .rotary = rotary};
    std::vector<double> x = {1, 2, 10, 20};
    const double slow = 0.3 * 0.4375, s = 2 * std::sin(3.0), k = 2 * std::cos(3.0);
    const double s_slow = 2 * std::sin(slow), k_slow = 2 * std::cos(slow);
    expect_close(rotated(test::exact_type(), c, x),
                 std::vector<double>{k - 10 * s, 2 * k_slow - 20 * s_slow, 10 * k + s, 20 * k_slow + 2 * s_slow},
                 tolerance(test::exact_type(), Operation::elementwise), "x");
  }
}

class RotaryTypes : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Rotary, RotaryTypes, testing::ValuesIn(test::kernel_types()), name_of_type);

TEST_P(RotaryTypes, MatchesTheDefinitionInStridedHeads) {
  for (const std::int64_t positions : {0, 1, 31, 33, 130, 1025}) {
    for (const Rotation rotation : {Rotation::forward, Rotation::backward}) {
      const Case c{positions, 2, 3, 10, 3, 1, {50}, {6, 500}};
      std::vector<double> x = random_values(c.numel(), 1);
      const std::vector<double> actual = rotated(GetParam(), c, x, rotation);
      // An angle of a thousand has lost three digits, like a long sum. Powers may differ in their last bit.
      Tolerance close = tolerance(GetParam(), Operation::sum);
      close.absolute += static_cast<double>(c.at[positions]) * std::numeric_limits<double>::epsilon();
      expect_close(actual, reference(c, x, rotation), close, fmt::format("{} positions", positions));
    }
  }
}

TEST_P(RotaryTypes, AnyCutOfASequenceAndAnyNumberOfThreadsGiveTheSameBits) {
  const Case whole{200, 1, 2, 16, 1, 0, {}, {16, 10000}};
  std::vector<double> x = random_values(whole.numel(), 2);
  const std::vector<double> expected = rotated(GetParam(), whole, x, Rotation::forward, 1);
  EXPECT_EQ(rotated(GetParam(), whole, x, Rotation::forward, 3), expected);
  std::vector<double> joined;
  for (const auto& [begin, count] : std::vector<std::pair<int, int>>{{0, 1}, {1, 62}, {63, 2}, {65, 135}}) {
    Case range = whole;
    range.positions = count;
    range.at = {begin};
    std::vector<double> rows(x.begin() + begin * 32, x.begin() + (begin + count) * 32);
    const std::vector<double> result = rotated(GetParam(), range, rows);
    joined.insert(joined.end(), result.begin(), result.end());
  }
  EXPECT_EQ(joined, expected);
}

TEST_P(RotaryTypes, RowsMayBeSplitInTwoPieces) {
  // In any order of the pieces, also if one of them is empty.
  for (const Positions at : {Positions{3, 20, 170}, Positions{170, 20, 3}, Positions{5, 33, 0}, Positions{0, 1, 200}}) {
    const Case c{33, 2, 2, 6, 1, 0, at, {6, 10000}};
    std::vector<double> x = random_values(c.numel(), 7);
    const std::vector<double> actual = rotated(GetParam(), c, x);
    expect_close(actual, reference(c, x, Rotation::forward), tolerance(GetParam(), Operation::sum), "x");
  }
}

TEST_P(RotaryTypes, EachSampleMayHaveItsOwnPositions) {
  Case c{33, 3, 2, 6, 2, 1, {50}, {6, 10000}};
  for (std::int32_t i = 0; i < 33 * 3; ++i) c.ids.push_back(i * 37 % 200);
  for (const Rotation rotation : {Rotation::forward, Rotation::backward}) {
    std::vector<double> x = random_values(c.numel(), 8);
    const std::vector<double> actual = rotated(GetParam(), c, x, rotation);
    expect_close(actual, reference(c, x, rotation), tolerance(GetParam(), Operation::sum), "x");
  }
}

TEST(Rotary, BackwardUndoesForwardAndIsItsTransposeFarIntoLongContexts) {
  TRIREME_NEEDS_FP64_KERNELS();
  const Case c{70, 1, 1, 128, 1, 0, {1'000'000}, {128, 10000}};
  std::vector<double> x = random_values(c.numel(), 3), y = random_values(c.numel(), 4);
  std::vector<double> turned = rotated(DType::fp64, c, x);
  // The angle of the fastest channel is about 1e6, so its last digit is worth 1e-10.
  expect_close(turned, reference(c, x, Rotation::forward), {1e-9, 1e-9}, "turned");
  expect_close(rotated(DType::fp64, c, turned, Rotation::backward), x, tolerance(DType::fp64, Operation::sum), "x");
  const std::vector<double> back = rotated(DType::fp64, c, y, Rotation::backward);
  EXPECT_NEAR(dot(turned, y), dot(x, back), 1e-11);
}

}  // namespace
}  // namespace trireme
