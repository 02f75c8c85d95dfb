#pragma once

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <bit>
#include <cstring>

#include "src/backend/kernels/dropout.hpp"

namespace trireme::cpu {

/// Eight 32-bit numbers, one in the low half of each 64-bit slot; the high halves are undefined. In this form a round
/// of Philox needs no shuffles.
using PhiloxLanes = std::uint64_t __attribute__((vector_size(64)));

/// The full products of the lanes with `factor`.
inline PhiloxLanes multiply(PhiloxLanes lanes, std::uint32_t factor) {
#if defined(__AVX512F__)
  return reinterpret_cast<PhiloxLanes>(
      _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(lanes), _mm512_set1_epi64(factor)));
#else
  return (lanes & 0xffffffffu) * std::uint64_t{factor};
#endif
}

/// philox4x32 of two times eight counters, in place: two independent dependency chains, to hide latency.
inline void philox_lanes(std::uint64_t key, PhiloxLanes (&counter)[2][4]) {
  std::uint32_t key_low = static_cast<std::uint32_t>(key);
  std::uint32_t key_high = static_cast<std::uint32_t>(key >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
#pragma GCC unroll 2
    for (PhiloxLanes(&c)[4] : counter) {
      const PhiloxLanes product0 = multiply(c[0], 0xD2511F53u);
      const PhiloxLanes product1 = multiply(c[2], 0xCD9E8D57u);
      c[0] = product1 >> 32 ^ c[1] ^ std::uint64_t{key_low};
      c[1] = product1;
      c[2] = product0 >> 32 ^ c[3] ^ std::uint64_t{key_high};
      c[3] = product0;
    }
    key_low += 0x9E3779B9u;
    key_high += 0xBB67AE85u;
  }
}

/// The low halves of `even` and `odd` as neighbouring 32-bit numbers: even[0], odd[0], even[1] ...
inline PhiloxLanes interleave(PhiloxLanes even, PhiloxLanes odd) { return (even & 0xffffffffu) | odd << 32; }

/// factor[c] = dropout.scale where column c of the row is kept, else 0, for c in [0, columns).
template <class A>
void dropout_row(const Dropout& dropout, std::uint64_t key, std::int64_t sample, std::int64_t row, std::int64_t columns,
                 A* factor) {
  static_assert(std::endian::native == std::endian::little, "the halves of a word are read through memory");
  constexpr std::int64_t step = 128;
  constexpr PhiloxLanes numbers = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::uint32_t threshold = dropout.keep_threshold;
  const A scale = static_cast<A>(dropout.scale);
  for (std::int64_t begin = 0; begin < columns; begin += step) {
    PhiloxLanes words[2][4] = {
        {PhiloxLanes{} + static_cast<std::uint32_t>(sample), PhiloxLanes{} + static_cast<std::uint32_t>(sample >> 32),
         PhiloxLanes{} + static_cast<std::uint32_t>(row), numbers + static_cast<std::uint64_t>(begin / 8)},
        {words[0][0], words[0][1], words[0][2], words[0][3] + 8}};
    philox_lanes(key, words);
    std::uint16_t bits[step];
    for (int half = 0; half < 2; ++half) {
      const PhiloxLanes low = interleave(words[half][0], words[half][1]);
      const PhiloxLanes high = interleave(words[half][2], words[half][3]);
      const PhiloxLanes calls[2] = {__builtin_shufflevector(low, high, 0, 8, 1, 9, 2, 10, 3, 11),
                                    __builtin_shufflevector(low, high, 4, 12, 5, 13, 6, 14, 7, 15)};
      std::memcpy(bits + half * step / 2, calls, sizeof calls);
    }
    if (columns - begin >= step) {
#pragma omp simd
      for (int c = 0; c < step; ++c) factor[begin + c] = bits[c] < threshold ? scale : A{0};
    } else {
      for (std::int64_t c = begin; c < columns; ++c) factor[c] = bits[c - begin] < threshold ? scale : A{0};
    }
  }
}

/// For the scores of one head, transposed: factor[k][q] = dropout.scale where query `row` + q keeps key
/// 8 `column_block` + k, else 0, for k in [0, 8) and q in [0, 16).
template <class A>
void dropout_scores(const Dropout& dropout, std::uint64_t key, std::int64_t sample, std::int64_t row,
                    std::int64_t column_block, A* factor, std::int64_t stride) {
  constexpr PhiloxLanes even_numbers = {0, 2, 4, 6, 8, 10, 12, 14};
  const std::uint32_t threshold = dropout.keep_threshold;
  const A scale = static_cast<A>(dropout.scale);
  PhiloxLanes words[2][4] = {
      {PhiloxLanes{} + static_cast<std::uint32_t>(sample), PhiloxLanes{} + static_cast<std::uint32_t>(sample >> 32),
       even_numbers + static_cast<std::uint64_t>(row), PhiloxLanes{} + static_cast<std::uint32_t>(column_block)},
      {words[0][0], words[0][1], words[0][2] + 1, words[0][3]}};
  philox_lanes(key, words);
  for (int word = 0; word < 4; ++word) {
    const PhiloxLanes both = interleave(words[0][word], words[1][word]);
    std::uint32_t bits[16];
    std::memcpy(bits, &both, sizeof bits);
    A* low = factor + 2 * word * stride;
#pragma omp simd
    for (int q = 0; q < 16; ++q) low[q] = (bits[q] & 0xffffu) < threshold ? scale : A{0};
#pragma omp simd
    for (int q = 0; q < 16; ++q) low[stride + q] = bits[q] >> 16 < threshold ? scale : A{0};
  }
}

}  // namespace trireme::cpu
