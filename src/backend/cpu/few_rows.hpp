#pragma once

#include "src/backend/cpu/bf16_matmul.hpp"
#include "src/backend/cpu/rows.hpp"

namespace trireme::cpu {

// Products of few rows by the rows of a weight matrix, as in text generation. They read the matrix once, as it lies in
// memory; the libraries first copy it to another layout, which pays for more rows.

/// Largest number of rows for which these are faster.
constexpr std::int64_t max_few_rows = 16;

/// Sums in registers: rows of the product, and columns, each a row of the matrix.
constexpr int few_rows = 4;
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int few_columns = 6;
#else
constexpr int few_columns = 2;
#endif

template <class A, int lanes>
inline A sum_of_lanes(const A* x) {
  if constexpr (lanes == 1) {
    return *x;
  } else {
    typedef A Half __attribute__((vector_size(lanes / 2 * sizeof(A))));
    Half low, high;
    __builtin_memcpy(&low, x, sizeof low);
    __builtin_memcpy(&high, x + lanes / 2, sizeof high);
    low += high;
    return sum_of_lanes<A, lanes / 2>(reinterpret_cast<const A*>(&low));
  }
}

/// c [rows, columns] = a b^T over k, with one order of additions for every element. Prefetches `ahead` rows of `next`
/// meanwhile.
template <int rows, int columns, class T>
inline void multiply_few(std::int64_t k, const Accumulation<T>* a, std::int64_t a_stride, const T* b,
                         std::int64_t b_stride, const T* next, std::int64_t ahead, Accumulation<T>* c,
                         std::int64_t c_stride) {
  using A = Accumulation<T>;
  using V = typename Vector<A>::type;
  constexpr int lanes = lanes_of<A>;
  V sum[rows][columns]{};
  std::int64_t i = 0;
  for (; i + lanes <= k; i += lanes) {
    for (std::int64_t j = 0; j < ahead; ++j) __builtin_prefetch(next + j * b_stride + i);
    V x[rows];
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) x[r] = load_vector(a + r * a_stride + i);
#pragma GCC unroll 8
    for (int j = 0; j < columns; ++j) {
      const V w = load_vector(b + j * b_stride + i);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) sum[r][j] += x[r] * w;
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int j = 0; j < columns; ++j) {
      A total = sum_of_lanes<A, lanes>(reinterpret_cast<const A*>(&sum[r][j]));
      for (std::int64_t rest = i; rest < k; ++rest) {
        total += a[r * a_stride + rest] * static_cast<A>(b[j * b_stride + rest]);
      }
      c[r * c_stride + j] = total;
    }
  }
}

/// c [m, n] = a b^T; a [m, k] in the accumulation type, b.data [n, k].
template <class T>
void few_row_product(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix<Accumulation<T>>& a,
                     const Matrix<T>& b, Accumulation<T>* c, std::int64_t c_stride) {
  const std::int64_t passes = (m + few_rows - 1) / few_rows;
  const auto with_columns = [&]<int columns>(std::int64_t j) {
    // Each pass over the rows of a prefetches its share of the rows of b that follow.
    for (std::int64_t pass = 0; pass < passes; ++pass) {
      const std::int64_t first = pass * columns / passes, row = pass * few_rows;
      const auto with_rows = [&]<int rows>() {
        multiply_few<rows, columns, T>(k, a.data + row * a.stride, a.stride, b.data + j * b.stride, b.stride,
                                       b.data + (j + columns + first) * b.stride, (pass + 1) * columns / passes - first,
                                       c + row * c_stride + j, c_stride);
      };
      static_assert(few_rows == 4);
      switch (m - row) {
        case 1:
          with_rows.template operator()<1>();
          break;
        case 2:
          with_rows.template operator()<2>();
          break;
        case 3:
          with_rows.template operator()<3>();
          break;
        default:
          with_rows.template operator()<4>();
      }
    }
  };
  std::int64_t j = 0;
  for (; j + few_columns <= n; j += few_columns) with_columns.template operator()<few_columns>(j);
  for (; j < n; ++j) with_columns.template operator()<1>(j);
}

}  // namespace trireme::cpu
