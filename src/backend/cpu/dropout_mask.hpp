#pragma once

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <algorithm>
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

/// philox4x32 of eight counters at once, in place.
inline void philox_lanes(std::uint64_t key, PhiloxLanes (&counter)[4]) {
  std::uint32_t key_low = static_cast<std::uint32_t>(key);
  std::uint32_t key_high = static_cast<std::uint32_t>(key >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const PhiloxLanes product0 = multiply(counter[0], 0xD2511F53u);
    const PhiloxLanes product1 = multiply(counter[2], 0xCD9E8D57u);
    counter[0] = product1 >> 32 ^ counter[1] ^ std::uint64_t{key_low};
    counter[1] = product1;
    counter[2] = product0 >> 32 ^ counter[3] ^ std::uint64_t{key_high};
    counter[3] = product0;
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
  constexpr PhiloxLanes iota = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::uint32_t threshold = dropout.keep_threshold;
  const A scale = static_cast<A>(dropout.scale);
  for (std::int64_t begin = 0; begin < columns; begin += 64) {
    PhiloxLanes words[4] = {
        PhiloxLanes{} + static_cast<std::uint32_t>(sample), PhiloxLanes{} + static_cast<std::uint32_t>(sample >> 32),
        PhiloxLanes{} + static_cast<std::uint32_t>(row), iota + static_cast<std::uint64_t>(begin / 8)};
    philox_lanes(key, words);
    const PhiloxLanes low = interleave(words[0], words[1]);
    const PhiloxLanes high = interleave(words[2], words[3]);
    std::uint64_t pairs[16];
    for (int lane = 0; lane < 8; ++lane) {
      pairs[2 * lane] = low[lane];
      pairs[2 * lane + 1] = high[lane];
    }
    std::uint16_t bits[64];
    std::memcpy(bits, pairs, sizeof bits);
    if (columns - begin >= 64) {
      for (int c = 0; c < 64; ++c) factor[begin + c] = bits[c] < threshold ? scale : A{0};
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
  PhiloxLanes even[4] = {
      PhiloxLanes{} + static_cast<std::uint32_t>(sample), PhiloxLanes{} + static_cast<std::uint32_t>(sample >> 32),
      even_numbers + static_cast<std::uint64_t>(row), PhiloxLanes{} + static_cast<std::uint32_t>(column_block)};
  PhiloxLanes odd[4] = {even[0], even[1], even[2] + 1, even[3]};
  philox_lanes(key, even);
  philox_lanes(key, odd);
  for (int word = 0; word < 4; ++word) {
    const PhiloxLanes both = interleave(even[word], odd[word]);
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
