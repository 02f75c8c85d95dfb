// The wrappers of tensor-core instructions, against plain products.
#include <gtest/gtest.h>

#include <gpu/mma.cuh>
#include <vector>

#include "src/base/hash.hpp"
#include "tests/support/gpu/fibers.hpp"

namespace trireme::gpu {
namespace {

template <class T>
class Mma : public testing::Test {
 protected:
  void TearDown() override { host::set_order(0); }
  ImmediateStream stream_;
};
using Types = testing::Types<bf16, fp16>;
TYPED_TEST_SUITE(Mma, Types);

template <class T>
std::vector<T> small_integers(std::size_t n, std::uint64_t seed) {
  std::vector<T> values;
  for (std::size_t i = 0; i < n; ++i) values.emplace_back(static_cast<float>(splitmix64(seed, i) % 17) - 8);
  return values;
}

template <class T>
struct Tiles {
  T a[16 * 24], b[16 * 24];
};

/// c += a b, one tile, from rows 24 elements apart; b is [16][8], or its transpose [8][16].
template <class T>
void product(const T* a, const T* b, bool transposed, float* c) {
  auto& tiles = shared<Tiles<T>>();
  const unsigned lane = threadIdx.x, g = lane / 4, t = lane % 4;
  copy_async(tiles.a + lane / 2 * 24 + lane % 2 * 8, a + lane * 8, true);
  if (lane < 16) copy_async(tiles.b + (transposed ? lane / 2 * 24 + lane % 2 * 8 : lane * 24), b + lane * 8, true);
  commit_copies();
  wait_for_copies<0>();
  __syncwarp();
  std::uint32_t left[4], right[4];
  load_matrices(tiles.a + lane % 16 * 24 + lane / 16 * 8, left);
  if (transposed)
    load_matrices(tiles.b + lane % 8 * 24 + lane / 8 % 2 * 8, right);
  else
    load_transposed(tiles.b + lane % 16 * 24, right);
  float sum[4];
  for (unsigned i = 0; i < 4; ++i) sum[i] = c[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2];
  multiply_add<T>(left, right[0], right[1], sum);
  for (unsigned i = 0; i < 4; ++i) c[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = sum[i];
}

TYPED_TEST(Mma, MultipliesTilesFromSharedMemory) {
  using T = TypeParam;
  const auto a = small_integers<T>(16 * 16, 1), b = small_integers<T>(16 * 8, 2);
  for (const bool transposed : {false, true}) {
    for (const unsigned order : {0U, 1U}) {
      host::set_order(order);
      std::vector<float> c(16 * 8, 3), expected(16 * 8, 3);
      for (int row = 0; row < 16; ++row) {
        for (int column = 0; column < 8; ++column) {
          for (int k = 0; k < 16; ++k) {
            expected[row * 8 + column] += static_cast<float>(a[row * 16 + k]) *
                                          static_cast<float>(transposed ? b[column * 16 + k] : b[k * 8 + column]);
          }
        }
      }
      launch(this->stream_, {"product", 1, 32}, product<T>, a.data(), b.data(), transposed, c.data());
      EXPECT_EQ(c, expected) << "transposed " << transposed << ", order " << order;
    }
  }
}

TYPED_TEST(Mma, PacksTheFirstNumberIntoTheLowHalf) {
  const std::uint32_t both = pack<TypeParam>(1.5F, -2);
  EXPECT_EQ(static_cast<float>(std::bit_cast<TypeParam>(static_cast<std::uint16_t>(both))), 1.5F);
  EXPECT_EQ(static_cast<float>(std::bit_cast<TypeParam>(static_cast<std::uint16_t>(both >> 16))), -2);
}

// What is not waited for is not there; nor is what is not valid.
TEST(Copies, ArriveWhenTheyAreWaitedFor) {
  ImmediateStream stream;
  std::vector<float> from(8), seen(12);
  for (int i = 0; i < 8; ++i) from[i] = static_cast<float>(i);
  launch(
      stream, {"copies", 1, 32, 48},
      +[](const float* x, float* y) {
        if (threadIdx.x != 0) return;
        auto* memory = dynamic_shared<float>();
        copy_async(memory, x, true);
        commit_copies();
        copy_async(memory + 4, x + 4, true);
        copy_async(memory + 8, x, false);
        commit_copies();
        wait_for_copies<1>();
        y[0] = memory[3];
        y[1] = memory[4];
        wait_for_copies<0>();
        y[2] = memory[4];
        y[3] = memory[8];
      },
      from.data(), seen.data());
  EXPECT_EQ(seen[0], 3);
  EXPECT_TRUE(std::isnan(seen[1]));
  EXPECT_EQ(seen[2], 4);
  EXPECT_EQ(seen[3], 0);
}

}  // namespace
}  // namespace trireme::gpu
