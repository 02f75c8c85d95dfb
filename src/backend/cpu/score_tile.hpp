#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "src/backend/cpu/dropout_mask.hpp"
#include "src/backend/cpu/rows.hpp"
#include "src/backend/cpu/tile.hpp"
#include "src/backend/kernels/attention.hpp"
#include "src/base/vector_math.hpp"

namespace trireme::cpu {

/// Scores are computed in tiles of `tile` keys by `tile` queries, transposed. A query is a vector lane, so the softmax
/// over keys runs down the rows. One Philox word masks two rows. K and V are read in memory order.
constexpr std::int64_t tile = 64;

/// The positions of one head of one sample.
template <class T>
struct Rows {
  T* first = nullptr;
  std::int64_t stride = 0;
  T* operator[](std::int64_t position) const { return first + position * stride; }
};
template <class T, class View>
auto rows_of(const HeadsOf<View>& heads, std::int64_t sample, std::int64_t head) {
  auto* data = heads.data.template as<T>();
  return Rows<std::remove_pointer_t<decltype(data)>>{data + sample * heads.sample_stride + head * heads.head_stride,
                                                     heads.position_stride};
}

/// Rows [begin, begin + count) times `factor`, padded with zeros to full tiles of vectors. Prefetches the rows after
/// them, up to `end`: they are too far apart for the hardware prefetcher.
template <class T, class A>
void load_tile(const Rows<const T>& rows, std::int64_t begin, std::int64_t count, std::int64_t end, std::int64_t d,
               std::int64_t width, A factor, A* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (begin + count + i < end) {
      const char* next = reinterpret_cast<const char*>(rows[begin + count + i]);
      for (std::size_t byte = 0; byte < d * sizeof(T); byte += 64) __builtin_prefetch(next + byte);
    }
    A* row = to + i * width;
    load_row(rows[begin + i], d, row);
    if (factor != 1) {
      for (std::int64_t c = 0; c < d; ++c) row[c] *= factor;
    }
    if (d < width) std::fill(row + d, row + width, A{0});
  }
  if (count % column_grain != 0) {
    std::fill(to + count * width, to + round_up(count, column_grain) * width, A{0});
  }
}

/// One tile of transposed scores: rows are keys, columns queries. A column's visible rows are those in [first_row(q),
/// visible(q)); neither bound decreases from column to column.
struct ScoreTile {
  std::int64_t keys, queries;
  std::int64_t diagonal;  ///< the query of column q attends to the key of row k if k + diagonal <= q
  std::int64_t d, width;  ///< channels, and the same rounded up to full vectors
  /// The first visible rows are those of `problem` for the sample, its queries from q_begin and its keys from k_begin
  /// on. Null if no row of the tile is before them.
  const AttentionProblem* problem = nullptr;
  std::int64_t sample = 0, q_begin = 0, k_begin = 0;

  std::int64_t columns() const { return round_up(queries, column_grain); }
  /// First row visible to column q; `keys` if none. Columns of padding have that of the last query.
  std::int64_t first_row(std::int64_t q) const {
    if (problem == nullptr) return 0;
    const std::int64_t first = problem->first_key_of(sample, q_begin + std::min(q, queries - 1)) - k_begin;
    return std::clamp<std::int64_t>(first, 0, keys);
  }
  /// First row that the products read of columns [q, q + column_grain), in full groups of tile_rows.
  std::int64_t begin_row(std::int64_t q) const { return round_down(first_row(q), tile_rows); }
  /// End of the columns needed by rows [k, k + tile_rows), in full groups of column_grain.
  std::int64_t end_column(std::int64_t k) const {
    std::int64_t end = columns();
    while (end > 0 && begin_row(end - column_grain) > k) end -= column_grain;
    return end;
  }
  /// End of the queries that attend to one of the rows [k, k + tile_rows).
  std::int64_t end_query(std::int64_t k) const {
    std::int64_t end = queries;
    while (end > 0 && first_row(end - 1) >= k + tile_rows) --end;
    return end;
  }
  /// First column needed by rows from k on.
  std::int64_t first_column(std::int64_t k) const {
    return std::clamp<std::int64_t>(round_down(std::max<std::int64_t>(k + diagonal, 0), column_grain), 0, columns());
  }
  /// Rows visible to column q.
  std::int64_t visible(std::int64_t q) const { return std::clamp<std::int64_t>(q - diagonal + 1, 0, keys); }
  /// Rows that the products read of columns [q, q + column_grain), in full groups of tile_rows.
  std::int64_t rows(std::int64_t q) const { return std::min(keys, round_up(visible(q + column_grain - 1), tile_rows)); }

  // Ranges of the operands that the products of a tile need.
  ProductRange scores(std::int64_t k) const { return {first_column(k), end_column(k), 0, d}; }
  ProductRange over_keys(std::int64_t q) const { return {0, width, first_row(q), visible(q + tile_rows - 1)}; }
  ProductRange over_queries(std::int64_t k) const {
    return {0, width, std::clamp<std::int64_t>(k + diagonal, 0, queries), end_query(k)};
  }

  /// Masks scores with minus infinity if the query of a column in [q, q + column_grain) does not attend to the key.
  template <class A>
  void hide(std::int64_t q, A* score) const {
    for (std::int64_t k = visible(q); k < rows(q); ++k) {
      A* row = score + k * tile + q;
      for (int lane = 0; lane < column_grain; ++lane) {
        row[lane] = k + diagonal <= q + lane ? row[lane] : -std::numeric_limits<A>::infinity();
      }
    }
    if (problem == nullptr) return;
    std::array<std::int64_t, column_grain> first;
    for (int lane = 0; lane < column_grain; ++lane) first[lane] = first_row(q + lane);
    for (std::int64_t k = begin_row(q); k < std::min(first.back(), rows(q)); ++k) {
      A* row = score + k * tile + q;
      for (int lane = 0; lane < column_grain; ++lane) {
        row[lane] = k >= first[lane] ? row[lane] : -std::numeric_limits<A>::infinity();
      }
    }
  }

  /// Applies the soft cap to the scores that the products computed, of columns [q, q + column_grain).
  template <class A>
  void soft_cap(std::int64_t q, A cap, A* score) const {
    const A reciprocal = 1 / cap;
    for (std::int64_t k = begin_row(q); k < rows(q); ++k) {
      A* row = score + k * tile + q;
#pragma omp simd
      for (int lane = 0; lane < column_grain; ++lane) row[lane] = cap * vector_tanh(row[lane] * reciprocal);
    }
  }

  /// Adds ALiBi's biases to the scores of columns [q, q + column_grain). Key 0 of the tile is at `ahead` from query 0.
  template <class A>
  void add_biases(std::int64_t q, A slope, std::int64_t ahead, A* score) const {
    for (std::int64_t k = begin_row(q); k < rows(q); ++k) {
      A* row = score + k * tile + q;
      const A distance = static_cast<A>(ahead + k - q);
#pragma omp simd
      for (int lane = 0; lane < column_grain; ++lane) row[lane] += slope * (distance - static_cast<A>(lane));
    }
  }

  /// Dropout factors of the visible scores. `row` is the position of query 0 of the tile, `column` that of key 0.
  template <class A>
  void dropout(const Dropout& dropout, std::uint64_t key, std::int64_t sample, std::int64_t row, std::int64_t column,
               A* factor) const {
    if (column % 8 != 0) {  // keys of one call of Philox lie in two groups of rows
      dropout_elements(dropout, key, sample, row, column, factor);
      return;
    }
    for (std::int64_t k = 0; k < keys; k += 8) {
      for (std::int64_t q = first_column(k); q < columns(); q += column_grain) {
        dropout_scores(dropout, key, sample, row + q, (column + k) / 8, factor + k * tile + q, tile);
      }
    }
  }

 private:
  /// Draws the factors query by query, for any `column`.
  template <class A>
  void dropout_elements(const Dropout& dropout, std::uint64_t key, std::int64_t sample, std::int64_t row,
                        std::int64_t column, A* factor) const {
    for (std::int64_t q = 0; q < columns(); ++q) {
      std::array<std::uint32_t, 4> words{};
      for (std::int64_t k = 0; k < keys; ++k) {
        const std::int64_t at = column + k;
        if (k == 0 || at % 8 == 0) words = Dropout::words(key, sample, row + q, at / 8);
        const bool keep = Dropout::bits_of_column(words, at) < dropout.keep_threshold;
        factor[k * tile + q] = keep ? static_cast<A>(dropout.scale) : A{0};
      }
    }
  }
};

/// to = row factor, rounded; changes `row`.
template <class T, class A>
void store_scaled(A* row, std::int64_t d, A factor, T* to) {
  for (std::int64_t c = 0; c < d; ++c) row[c] *= factor;
  store_row(row, d, to);
}

/// Rows of results of one head: of type T, or with AttentionResults::merge of type A.
template <class T>
class ResultRows {
  using A = Accumulation<T>;

 public:
  ResultRows(const AttentionProblem& problem, const Heads& heads, std::int64_t sample, std::int64_t head) {
    if (problem.results == AttentionResults::merge) {
      merged_ = rows_of<A>(heads, sample, head);
    } else {
      rows_ = rows_of<T>(heads, sample, head);
    }
  }

  /// Row i of the sums to merge with.
  A* merged(std::int64_t i) const { return merged_[i]; }
  /// Row i = row factor; changes `row`.
  void store(std::int64_t i, A* row, std::int64_t d, A factor) const {
    if (merged_.first != nullptr) {
      store_scaled(row, d, factor, merged_[i]);
    } else {
      store_scaled(row, d, factor, rows_[i]);
    }
  }
  /// Row i = row factor, or += if results are merged; changes `row`.
  void store_or_add(std::int64_t i, A* row, std::int64_t d, A factor) const {
    if (merged_.first == nullptr) return store_scaled(row, d, factor, rows_[i]);
    A* to = merged_[i];
    for (std::int64_t c = 0; c < d; ++c) to[c] += row[c] * factor;
  }

 private:
  Rows<T> rows_;
  Rows<A> merged_;
};

/// The tile of queries [q_begin, ...) and keys [k_begin, ...) of a sample, of which `queries` and `keys` exist.
inline ScoreTile score_tile(const AttentionProblem& problem, std::int64_t sample, std::int64_t q_begin,
                            std::int64_t queries, std::int64_t k_begin, std::int64_t keys) {
  const std::int64_t ahead = problem.first_key + k_begin - problem.first_query - q_begin;  // key 0 of query 0
  ScoreTile t{std::min(keys, tile), std::min(queries, tile), problem.causal ? ahead : -tile, problem.head_dim,
              round_up(problem.head_dim, column_grain)};
  if (problem.first_key_of(sample, q_begin + t.queries - 1) > k_begin) {
    t.problem = &problem;
    t.sample = sample;
    t.q_begin = q_begin;
    t.k_begin = k_begin;
  }
  return t;
}

/// Slope of ALiBi's biases of a head; 0 without them.
template <class A>
A alibi_slope(const AttentionProblem& problem, std::int64_t head) {
  return problem.alibi_heads == 0 ? A{0} : std::exp2(problem.alibi_exponent<A>(head));
}

/// Number of keys that are visible to query q of a sample, which is not padding.
inline std::int64_t visible_keys(const AttentionProblem& problem, std::int64_t sample, std::int64_t q) {
  const std::int64_t keys = problem.keys_of(sample);
  if (!problem.causal) return keys;
  return std::clamp<std::int64_t>(problem.first_query + q - problem.first_key + 1, 0, keys);
}

}  // namespace trireme::cpu
