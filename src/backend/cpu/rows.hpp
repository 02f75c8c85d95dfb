#pragma once

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "src/backend/cpu/tile.hpp"
#include "src/tensor/dtype.hpp"

namespace trireme::cpu {

/// y = x in the accumulation type.
template <class T>
inline void load_row(const T* x, std::int64_t n, Accumulation<T>* y) {
  std::int64_t i = 0;
#if defined(__AVX512F__)  // GCC 12 does not vectorise conversions of _Float16
  if constexpr (std::is_same_v<T, fp16>)
    for (; i + 16 <= n; i += 16) {
      _mm512_storeu_ps(y + i,
                       _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i))));
    }
#endif
  for (; i < n; ++i) y[i] = static_cast<Accumulation<T>>(x[i]);
}

/// A vector of x, which needs no alignment, in the accumulation type.
template <class T>
inline typename Vector<Accumulation<T>>::type load_vector(const T* x) {
  using A = Accumulation<T>;
  typename Vector<A>::type y;
  if constexpr (std::is_same_v<T, A>) {
    __builtin_memcpy(&y, x, sizeof y);
  } else {
#if defined(__AVX512F__)
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
    if constexpr (std::is_same_v<T, bf16>) {
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
    } else {
      return _mm512_maskz_cvtph_ps(0xffff, bits);
    }
#endif
    load_row(x, lanes_of<A>, reinterpret_cast<A*>(&y));
  }
  return y;
}

/// y = x rounded to the training type (nearest, ties to even).
template <class T>
inline void store_row(const Accumulation<T>* x, std::int64_t n, T* y) {
  std::int64_t i = 0;
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, fp16>)
    for (; i + 16 <= n; i += 16) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(y + i), _mm512_maskz_cvtps_ph(0xffff, _mm512_loadu_ps(x + i), 0));
    }
#endif
#if defined(__AVX512BF16__)
  if constexpr (std::is_same_v<T, bf16>) {
    constexpr int denormal = 0x20;  // the instruction would round them to 0
    for (; i + 32 <= n; i += 32) {
      const __m512 low = _mm512_loadu_ps(x + i), high = _mm512_loadu_ps(x + i + 16);
      if ((_mm512_fpclass_ps_mask(low, denormal) | _mm512_fpclass_ps_mask(high, denormal)) != 0) [[unlikely]] {
        for (int lane = 0; lane < 32; ++lane) y[i + lane] = static_cast<T>(x[i + lane]);
      } else {
        _mm512_storeu_si512(y + i, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
      }
    }
  }
#endif
  for (; i < n; ++i) y[i] = static_cast<T>(x[i]);
}

/// y = x past the caches, for rows that are not read soon: memory is written without being read. The writes become
/// visible to other threads after a fence, as at the end of multiply_by_tiles.
template <class T>
inline void stream_row(const T* x, std::int64_t n, T* y) {
  std::int64_t i = 0;
#if defined(__AVX512F__)
  constexpr std::int64_t lanes = 64 / sizeof(T);
  if (reinterpret_cast<std::uintptr_t>(y) % 64 == 0) {
    for (; i + lanes <= n; i += lanes)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(y + i), _mm512_loadu_si512(x + i));
  }
#endif
  for (; i < n; ++i) y[i] = x[i];
}

/// A row in the accumulation type: the row itself if that is its type, else `buffer` after conversion.
template <class T>
inline const Accumulation<T>* row_in(const T* x, std::int64_t n, Accumulation<T>* buffer) {
  if constexpr (std::is_same_v<T, Accumulation<T>>) {
    return x;
  } else {
    load_row(x, n, buffer);
    return buffer;
  }
}

/// Memory in which to compute a row of y: y itself if it has the accumulation type, else `buffer`, which `finish_row`
/// then rounds to y.
template <class T>
inline Accumulation<T>* row_out(T* y, Accumulation<T>* buffer) {
  if constexpr (std::is_same_v<T, Accumulation<T>>)
    return y;
  else
    return buffer;
}
template <class T>
inline void finish_row(const Accumulation<T>* computed, std::int64_t n, T* y) {
  if constexpr (!std::is_same_v<T, Accumulation<T>>) store_row(computed, n, y);
}

}  // namespace trireme::cpu
