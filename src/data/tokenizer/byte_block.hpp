#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <cstdint>

namespace trireme::data {

/// Sixty-four bytes of a text, which are compared together in registers as wide as the target's.
class ByteBlock {
#if defined(__AVX512BW__)
  static constexpr int width = 64;
#elif defined(__AVX2__)
  static constexpr int width = 32;
#elif defined(__SSE2__)
  static constexpr int width = 16;
#else
  static constexpr int width = 8;
#endif

 public:
  static constexpr int size = 64;
  /// Bytes of a register. Comparisons return 255 for true and 0 for false.
  using Bytes [[gnu::vector_size(width)]] = std::uint8_t;

  /// Reads `size` bytes at `text`.
  explicit ByteBlock(const char* text) {
    for (int i = 0; i < size / width; ++i) parts_[i] = *reinterpret_cast<const Unaligned*>(text + i * width);
  }

  /// Returns a number whose bit i is set if `test`, a comparison of `Bytes`, holds for byte i.
  template <class Test>
  std::uint64_t bits(const Test& test) const {
    std::uint64_t result = 0;
    for (int i = 0; i < size / width; ++i) {
      result |= sign_bits(reinterpret_cast<Bytes>(test(parts_[i]))) << (i * width % size);
    }
    return result;
  }
  /// Bits of the bytes from `first` to `last`.
  std::uint64_t range(std::uint8_t first, std::uint8_t last) const {
    return bits([&](Bytes b) { return b - first <= static_cast<std::uint8_t>(last - first); });
  }
  std::uint64_t equal(char c) const {
    return bits([&](Bytes b) { return b == static_cast<std::uint8_t>(c); });
  }
  /// Bits of the bytes that are not ASCII.
  std::uint64_t others() const {
    return bits([](Bytes b) { return b; });
  }
  /// Bits of the letters of ASCII.
  std::uint64_t letters() const {
    return bits([](Bytes b) { return (b | std::uint8_t{0x20}) - std::uint8_t{'a'} <= std::uint8_t{'z' - 'a'}; });
  }

 private:
  using Unaligned [[gnu::vector_size(width), gnu::aligned(1), gnu::may_alias]] = std::uint8_t;

  static std::uint64_t sign_bits(Bytes mask) {
#if defined(__AVX512BW__)
    return _mm512_movepi8_mask(reinterpret_cast<__m512i>(mask));
#elif defined(__AVX2__)
    return static_cast<std::uint32_t>(_mm256_movemask_epi8(reinterpret_cast<__m256i>(mask)));
#elif defined(__SSE2__)
    return static_cast<std::uint32_t>(_mm_movemask_epi8(reinterpret_cast<__m128i>(mask)));
#else
    std::uint64_t result = 0;
    for (int i = 0; i < width; ++i) result |= std::uint64_t{mask[i] >> 7} << i;
    return result;
#endif
  }

  Bytes parts_[size / width];
};

}  // namespace trireme::data
