#include "src/backend/cpu/rows.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

namespace trireme::test {
namespace {

// Numbers of every magnitude, infinities and those that are not numbers: vector instructions round some to 0.
TEST(StoreRow, RoundsToBf16AsTheConversionOfOneNumber) {
  std::vector<float> numbers;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 0x35711) {
    numbers.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  for (const std::uint32_t bits : {0x7f800000u, 0xff800000u, 0x7f800001u, 0xffffffffu, 0x7f7fffffu, 0x80000000u, 1u}) {
    numbers.push_back(std::bit_cast<float>(bits));
  }
  std::vector<bf16> rounded(numbers.size());
  cpu::store_row(numbers.data(), std::ssize(numbers), rounded.data());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    ASSERT_EQ(rounded[i].bits, bf16(numbers[i]).bits) << std::bit_cast<std::uint32_t>(numbers[i]);
  }
}

TEST(StreamRow, CopiesRowsOfAnyLengthAndAlignment) {
  std::array<float, 100> from;
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
  alignas(64) std::array<float, 128> to;
  for (const std::int64_t first : {0, 3}) {
    for (const std::int64_t n : {1, 16, 32, 45}) {
      to.fill(-1);
      cpu::stream_row(from.data(), n, to.data() + first);
      for (std::int64_t i = 0; i < std::ssize(to); ++i) {
        const bool is_copied = i >= first && i < first + n;
        ASSERT_EQ(to[static_cast<std::size_t>(i)], is_copied ? static_cast<float>(i - first) : -1.0f) << n << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace trireme::test
