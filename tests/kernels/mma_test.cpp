// The wrappers of tensor-core instructions and of asynchronous copies, against plain products and copies.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "src/base/hash.hpp"
#include "tests/kernels/mma_kernels.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/support/test_backend.hpp"

namespace trireme {
namespace {

using namespace test;

std::vector<double> small_integers(std::size_t n, std::uint64_t seed) {
  std::vector<double> values;
  for (std::size_t i = 0; i < n; ++i) values.push_back(static_cast<double>(splitmix64(seed, i) % 17) - 8);
  return values;
}

class Mma : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, Mma, testing::Values(DType::bf16, DType::fp16), name_of_type);

TEST_P(Mma, MultipliesTilesFromSharedMemory) {
  const std::vector<double> a = small_integers(16 * 16, 1), b = small_integers(16 * 8, 2);
  for (const bool transposed : {false, true}) {
    std::vector<double> expected(16 * 8, 3);
    for (std::size_t row = 0; row < 16; ++row) {
      for (std::size_t column = 0; column < 8; ++column) {
        for (std::size_t k = 0; k < 16; ++k) {
          expected[row * 8 + column] += a[row * 16 + k] * (transposed ? b[column * 16 + k] : b[k * 8 + column]);
        }
      }
    }
    for (const int variant : {1, 2}) {
      const auto backend = test::make_backend(variant);
      const Tensor left = make_tensor(*backend, GetParam(), {16, 16}, a);
      const Tensor right = make_tensor(*backend, GetParam(), {16, 8}, b);
      const Tensor sum = make_tensor(*backend, DType::fp32, {16, 8}, std::vector<double>(16 * 8, 3));
      multiply_tile(backend->compute_stream(), GetParam(), left.view().data(), right.view().data(), transposed,
                    sum.view().as<float>());
      EXPECT_EQ(values_of(*backend, sum), expected) << "transposed " << transposed << ", variant " << variant;
    }
  }
}

TEST_P(Mma, PacksTheFirstNumberIntoTheLowHalf) {
  const auto backend = test::make_backend(1);
  const Tensor both = poisoned_tensor(*backend, GetParam(), {2});
  pack_pair(backend->compute_stream(), GetParam(), 1.5F, -2, reinterpret_cast<std::uint32_t*>(both.view().data()));
  EXPECT_EQ(values_of(*backend, both), (std::vector<double>{1.5, -2}));
}

TEST(Copies, ArriveWhereTheyAreWaitedForAndBringZerosWhereTheyAreNotValid) {
  const auto backend = test::make_backend(1);
  const std::vector<double> from{1, 2, 3, 4, 5, 6, 7, 8};
  const Tensor x = make_tensor(*backend, DType::fp32, {8}, from), y = poisoned_tensor(*backend, DType::fp32, {12});
  copy_in_groups(backend->compute_stream(), x.view().as<float>(), y.view().as<float>());
  std::vector<double> expected = from;
  expected.resize(12, 0);
  EXPECT_EQ(values_of(*backend, y), expected);
}

}  // namespace
}  // namespace trireme
