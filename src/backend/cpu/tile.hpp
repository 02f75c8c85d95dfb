#pragma once

#include <cstdint>
#include <utility>

namespace trireme::cpu {

// Small dense products on cache-resident tiles: rows of 64-byte aligned memory whose length is a multiple of the vector
// length. The compiler maps the vector types below to the machine's instructions.

#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
#elif defined(__AVX__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif

// Register block of a product: enough sums to hide the multiply-add latency, few enough to leave registers for the
// factors.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int tile_rows = 8;
#else
constexpr int tile_rows = 4;
#endif
constexpr int tile_vectors = 2;
// Parts of tiles begin at multiples of this many columns: full vectors of every type.
constexpr int column_grain = 16;

/// Vector of `lanes` numbers.
template <class A>
struct Vector {
  static constexpr int lanes = vector_bytes / sizeof(A);
  typedef A type __attribute__((vector_size(vector_bytes), may_alias));
};
template <class A>
constexpr int lanes_of = Vector<A>::lanes;

template <class A>
inline auto& vector_at(A* p) {
  return *reinterpret_cast<typename Vector<A>::type*>(p);
}
template <class A>
inline const auto& vector_at(const A* p) {
  return *reinterpret_cast<const typename Vector<A>::type*>(p);
}

/// n rounded down or up to a multiple of m.
constexpr std::int64_t round_down(std::int64_t n, std::int64_t m) { return n / m * m; }
constexpr std::int64_t round_up(std::int64_t n, std::int64_t m) { return (n + m - 1) / m * m; }

/// Combination of a product with the tile it is written to.
enum class Update { overwrite, accumulate, rescale_and_accumulate };
/// Layout of the first factor in memory: a[row][k] or a[k][row].
enum class Order { by_row, by_column };

/// Block of a product needed by some rows: columns [column_begin, column_end), sums over k in [begin, end).
struct ProductRange {
  std::int64_t column_begin, column_end, begin, end;
};

/// tile_rows rows and `vectors` vectors of c = (c or c rescale[row] or 0) + a b.
template <Update update, Order order, int vectors, class A>
inline void multiply_in_registers(const A* a, std::int64_t a_stride, const A* b, std::int64_t b_stride, A* c,
                                  std::int64_t c_stride, std::int64_t begin, std::int64_t end, const A* rescale) {
  using V = typename Vector<A>::type;
  constexpr int lanes = lanes_of<A>;
  V sum[tile_rows][vectors];
#pragma GCC unroll 8
  for (int i = 0; i < tile_rows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < vectors; ++j) {
      if constexpr (update == Update::overwrite) {
        sum[i][j] = V{};
      } else {
        sum[i][j] = vector_at(c + i * c_stride + j * lanes);
        if constexpr (update == Update::rescale_and_accumulate) sum[i][j] *= rescale[i];
      }
    }
  }
  for (std::int64_t k = begin; k < end; ++k) {
    V row[vectors];
#pragma GCC unroll 2
    for (int j = 0; j < vectors; ++j) row[j] = vector_at(b + k * b_stride + j * lanes);
#pragma GCC unroll 8
    for (int i = 0; i < tile_rows; ++i) {
      const A factor = order == Order::by_row ? a[i * a_stride + k] : a[k * a_stride + i];
#pragma GCC unroll 2
      for (int j = 0; j < vectors; ++j) sum[i][j] += factor * row[j];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < tile_rows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < vectors; ++j) vector_at(c + i * c_stride + j * lanes) = sum[i][j];
  }
}

/// c = (c, c rescale[row] or 0) + a b over `rows` rows, rounded up to tile_rows; `range(row)` gives the ProductRange of
/// rows [row, row + tile_rows).
template <Update update, Order order, class A, class Range>
inline void multiply_tile(std::int64_t rows, Range&& range, const A* a, std::int64_t a_stride, const A* b,
                          std::int64_t b_stride, A* c, std::int64_t c_stride, const A* rescale = nullptr) {
  for (std::int64_t i = 0; i < rows; i += tile_rows) {
    const ProductRange r = range(i);
    const A* a_rows = order == Order::by_row ? a + i * a_stride : a + i;
    const A* factor = rescale == nullptr ? nullptr : rescale + i;
    std::int64_t j = r.column_begin;
    const auto strip = [&]<int vectors>() {
      multiply_in_registers<update, order, vectors>(a_rows, a_stride, b + j, b_stride, c + i * c_stride + j, c_stride,
                                                    r.begin, r.end, factor);
      j += vectors * lanes_of<A>;
    };
    while (r.column_end - j >= tile_vectors * lanes_of<A>) strip.template operator()<tile_vectors>();
    if (r.column_end > j) strip.template operator()<1>();
  }
}

/// y[j][i] = x[i][j], `rows` and `columns` multiples of the vector.
template <class A>
inline void transpose_tile(const A* x, std::int64_t x_stride, std::int64_t rows, std::int64_t columns, A* y,
                           std::int64_t y_stride) {
  using V = typename Vector<A>::type;
  constexpr int lanes = lanes_of<A>;
  const auto interleave = []<int... lane>(std::integer_sequence<int, lane...>, V a, V b, auto half) {
    return __builtin_shufflevector(a, b, (half * lanes / 2 + lane / 2 + lane % 2 * lanes)...);
  };
  using Sequence = std::make_integer_sequence<int, lanes>;
  for (std::int64_t i = 0; i < rows; i += lanes) {
    for (std::int64_t j = 0; j < columns; j += lanes) {
      V from[lanes], to[lanes];
#pragma GCC unroll 16
      for (int r = 0; r < lanes; ++r) from[r] = vector_at(x + (i + r) * x_stride + j);
        // Interleaving the two halves of the rows rotates the bits of (row, column) by one.
#pragma GCC unroll 4
      for (int stage = 1; stage < lanes; stage *= 2) {
#pragma GCC unroll 16
        for (int r = 0; r < lanes / 2; ++r) {
          to[2 * r] = interleave(Sequence{}, from[r], from[r + lanes / 2], std::integral_constant<int, 0>{});
          to[2 * r + 1] = interleave(Sequence{}, from[r], from[r + lanes / 2], std::integral_constant<int, 1>{});
        }
#pragma GCC unroll 16
        for (int r = 0; r < lanes; ++r) from[r] = to[r];
      }
#pragma GCC unroll 16
      for (int r = 0; r < lanes; ++r) vector_at(y + (j + r) * y_stride + i) = from[r];
    }
  }
}

}  // namespace trireme::cpu
