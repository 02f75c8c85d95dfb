#include "src/backend/cpu/bf16_tiles.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace trireme::test {
namespace {

using cpu::Matrix;
using cpu::ProductBlock;

/// Values of bf16 in [-1, 1), with values that are not numbers behind the last: no product may read them.
struct Values {
  Values(std::int64_t count, std::int64_t seed) : all(static_cast<std::size_t>(count) + 64) {
    std::ranges::fill(all, bf16(std::numeric_limits<float>::quiet_NaN()));
    for (std::int64_t i = 0; i < count; ++i) {
      all[static_cast<std::size_t>(i)] = bf16(static_cast<float>((i * 7919 + seed * 104729) % 1999) / 1000.0f - 1);
    }
  }
  std::vector<bf16> all;
};

/// The product by tiles, without the columns that fill up the last tile.
std::vector<float> product(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix<bf16>& a,
                           const Matrix<bf16>& b) {
  cpu::ScratchPool scratch;
  std::vector<float> sums(static_cast<std::size_t>(m * n), -1);
  std::int64_t done = 0;
  cpu::multiply_by_tiles(m, n, k, a, b, scratch, {}, [&](const ProductBlock& part) {
    done += part.rows * part.columns;
    for (std::int64_t r = 0; r < part.rows; ++r) {
      std::copy_n(part.sums + r * part.stride, part.columns, sums.begin() + (part.row + r) * n + part.column);
    }
  });
  EXPECT_EQ(done, m * n);
  return sums;
}

class Bf16Tiles : public testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::have_bf16_tiles()) GTEST_SKIP() << "This processor has no AMX, or ONEDNN_MAX_CPU_ISA excludes it.";
  }
};

TEST_F(Bf16Tiles, MultiplyMatricesOfAnyShapeAndOrder) {
  constexpr std::array<std::array<std::int64_t, 3>, 8> extents = {{{1, 1, 1},
                                                                   {32, 32, 32},
                                                                   {33, 31, 35},
                                                                   {100, 70, 513},
                                                                   {17, 300, 1500},
                                                                   {40, 1100, 1100},
                                                                   {95, 64, 2049},
                                                                   {70, 1100, 900}}};
  for (const auto& [m, n, k] : extents) {
    const Values a(m * k, 1), b(k * n, 2);
    for (const bool a_transposed : {false, true}) {
      for (const bool b_transposed : {false, true}) {
        const Matrix<bf16> left{a.all.data(), a_transposed ? m : k, a_transposed};
        const Matrix<bf16> right{b.all.data(), b_transposed ? k : n, b_transposed};
        const std::vector<float> sums = product(m, n, k, left, right);
        double worst = 0;  // difference, as a part of the sum of magnitudes
        for (std::int64_t i = 0; i < m; ++i) {
          for (std::int64_t j = 0; j < n; ++j) {
            double sum = 0, magnitudes = 0;
            for (std::int64_t t = 0; t < k; ++t) {
              const double term = double{float{*left.at(i, t)}} * double{float{*right.at(t, j)}};
              sum += term;
              magnitudes += std::abs(term);
            }
            const double difference = std::abs(sum - sums[static_cast<std::size_t>(i * n + j)]) / magnitudes;
            worst = difference <= worst ? worst : difference;  // also one that is not a number
          }
        }
        EXPECT_LE(worst, 1e-6) << m << " x " << n << " x " << k << ", " << a_transposed << b_transposed;
      }
    }
  }
}

TEST_F(Bf16Tiles, ComputePartsOfAProductAsTheEntireOne) {
  const std::int64_t m = 150, n = 1100, k = 1300;
  const Values a(m * k, 3), b(k * n, 4);
  const Matrix<bf16> left{a.all.data(), k, false}, right{b.all.data(), n, false};
  const std::vector<float> whole = product(m, n, k, left, right);
  const std::vector<float> part = product(70, 90, k, left.block(65, 0), right.block(0, 1001));
  for (std::int64_t i = 0; i < 70; ++i) {
    for (std::int64_t j = 0; j < 90; ++j) {
      ASSERT_EQ(part[static_cast<std::size_t>(i * 90 + j)], whole[static_cast<std::size_t>((65 + i) * n + 1001 + j)])
          << i << " " << j;
    }
  }
}

}  // namespace
}  // namespace trireme::test
