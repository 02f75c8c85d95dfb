#include "src/backend/kernels/fp8.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace trireme {
namespace {

/// All numbers of a format that are not negative, as its definition gives them.
std::vector<float> numbers_of(Fp8Format format) {
  const int mantissa = 1 << fp8_mantissa_bits(format), least = fp8_least_exponent(format);
  std::vector<float> numbers;
  for (int i = 0; i < mantissa; ++i) numbers.push_back(std::ldexp(static_cast<float>(i) / mantissa, least));
  for (int exponent = least; exponent <= fp8_largest_exponent(format); ++exponent) {
    for (int i = 0; i < mantissa; ++i) numbers.push_back(std::ldexp(1 + static_cast<float>(i) / mantissa, exponent));
  }
  const float largest = format == Fp8Format::e4m3 ? 448 : 57344;
  std::erase_if(numbers, [&](float number) { return number > largest; });
  EXPECT_EQ(numbers.back(), largest);
  return numbers;
}

TEST(Fp8, RoundsToTheNearestNumberTiesToEven) {
  for (const Fp8Format format : {Fp8Format::e4m3, Fp8Format::e5m2}) {
    const std::vector<float> numbers = numbers_of(format);
    for (std::size_t i = 0; i + 1 < numbers.size(); ++i) {
      const float low = numbers[i], high = numbers[i + 1], middle = (low + high) / 2;
      EXPECT_EQ(round_to_fp8(low, format), low);
      EXPECT_EQ(round_to_fp8(std::nextafter(middle, low), format), low);
      EXPECT_EQ(round_to_fp8(std::nextafter(middle, high), format), high);
      EXPECT_EQ(round_to_fp8(-middle, format), i % 2 == 0 ? -low : -high) << middle;
    }
    EXPECT_EQ(round_to_fp8(numbers.back() * 1.01f, format), numbers.back());
    EXPECT_EQ(round_to_fp8(-std::numeric_limits<float>::infinity(), format), -numbers.back());
    EXPECT_TRUE(std::isnan(round_to_fp8(std::numeric_limits<float>::quiet_NaN(), format)));
    EXPECT_TRUE(std::signbit(round_to_fp8(-0.0f, format)));
  }
}

TEST(Fp8, BytesAreThoseOfTheFormats) {
  for (const Fp8Format format : {Fp8Format::e4m3, Fp8Format::e5m2}) {
    const std::vector<float> numbers = numbers_of(format);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      EXPECT_EQ(fp8_code(numbers[i], format), i) << numbers[i];
      EXPECT_EQ(fp8_code(-numbers[i], format), i | 0x80) << numbers[i];
      EXPECT_EQ(fp8_number(static_cast<std::uint8_t>(i), format), numbers[i]);
      EXPECT_EQ(fp8_number(static_cast<std::uint8_t>(i | 0x80), format), -numbers[i]);
    }
    const float nan = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(fp8_number(fp8_code(nan, format), format)));
  }
}

TEST(Fp8, ScalesByTheLargestPowerOfTwoThatKeepsTheMagnitude) {
  for (const Fp8Format format : {Fp8Format::e4m3, Fp8Format::e5m2}) {
    const float largest = numbers_of(format).back();
    for (const float size : {1.75f, 1.7500001f, 1.0f, 3.4f, 1e-8f, 1e20f}) {
      const float scaled = size * power_of_two(fp8_scale_exponent(size, format, 0));
      EXPECT_LE(scaled, largest) << size;
      EXPECT_GT(2 * scaled, largest) << size;
      EXPECT_EQ(fp8_scale_exponent(size, format, 3), fp8_scale_exponent(size, format, 0) - 3);
    }
    EXPECT_EQ(fp8_scale_exponent(0, format, 0), fp8_largest_exponent(format));
    EXPECT_EQ(fp8_scale_exponent(std::numeric_limits<float>::infinity(), format, 0), fp8_largest_exponent(format));
  }
}

}  // namespace
}  // namespace trireme
