#pragma once

#include <cstdint>
#include <limits>

#include "src/base/vector_math.hpp"

namespace trireme {

// The loops over a row are separate functions: variables captured by reference prevent good vectorisation.

template <class A>
inline A max_of(const A* x, std::int64_t n) {
  A max_logit = -std::numeric_limits<A>::infinity();
#pragma omp simd reduction(max : max_logit)
  for (std::int64_t c = 0; c < n; ++c) max_logit = x[c] > max_logit ? x[c] : max_logit;
  return max_logit;
}

template <class A>
inline A sum_of_exponentials(const A* x, std::int64_t n, A shift) {
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < n; ++c) sum += vector_exp(x[c] - shift);
  return sum;
}

/// y = exp(x - shift) factor
template <class A>
inline void scaled_exponentials(const A* x, std::int64_t n, A shift, A factor, A* y) {
#pragma omp simd
  for (std::int64_t c = 0; c < n; ++c) y[c] = vector_exp(x[c] - shift) * factor;
}

}  // namespace trireme
