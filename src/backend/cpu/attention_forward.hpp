#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "src/backend/cpu/score_tile.hpp"
#include "src/backend/cpu/scratch.hpp"
#include "src/base/vector_math.hpp"

namespace trireme::cpu {

/// Tiles of queries that a task of forward processes together for each tile of keys.
constexpr std::int64_t tiles_together = 2;

/// State of a tile of queries during the loop over the keys.
template <class A>
struct QueryTile {
  QueryTile(ScratchPool::Lease& lease, std::int64_t head_width)
      : width(head_width),
        transposed(lease.take<A>(tile * width)),
        sum(lease.take<A>(tile * width)),
        maximum(lease.take<A>(tile)),
        total(lease.take<A>(tile)) {}
  std::int64_t width;  ///< head size, rounded up to full columns
  A* transposed;       ///< the queries times the scale, [width, tile]
  A* sum;              ///< sums of exp(score - maximum) v, [tile, width]
  A* maximum;          ///< largest scores so far
  A* total;            ///< sums of exp(score - maximum)
  std::int64_t begin = 0;
  std::int64_t queries = 0;  ///< without padding
  std::int64_t rows = 0;     ///< with padding

  /// Leaves the rows from `first` on without keys.
  void clear(std::int64_t first) const {
    std::fill(sum + first * width, sum + tile * width, A{0});
    std::fill(total + first, total + tile, A{0});
    // Not minus infinity, to keep the difference of two a number.
    std::fill(maximum + first, maximum + tile, std::numeric_limits<A>::lowest());
  }

  /// Continues query i from earlier keys: out is a sum with the total 1 and the maximum lse.
  template <class Rows>
  void resume(std::int64_t i, A lse, const Rows& out_rows, std::int64_t d) {
    if (lse == -std::numeric_limits<A>::infinity()) return;  // no earlier key
    maximum[i] = lse;
    total[i] = 1;
    std::copy_n(out_rows.merged(begin + i), d, sum + i * width);
  }

  /// Writes the results and log(sum exp(score)) of all rows; those of padding have no keys.
  template <class Rows>
  void store(const Rows& out_rows, std::int64_t d, A* lse) const {
    clear(queries);
    for (std::int64_t i = 0; i < rows; ++i) {
      out_rows.store(begin + i, sum + i * width, d, total[i] == 0 ? A{0} : 1 / total[i]);
      lse[begin + i] = maximum[i] + std::log(total[i]);
    }
  }
};

/// A tile of keys and values, and its scores with one tile of queries.
template <class A>
struct KeyTile {
  KeyTile(ScratchPool::Lease& lease, std::int64_t width)
      : k(lease.take<A>(tile * width)),
        v(lease.take<A>(tile * width)),
        score(lease.take<A>(tile * tile)),
        factor(lease.take<A>(tile * tile)),
        rescale(lease.take<A>(tile)) {}
  A* k;        ///< [tile, width]
  A* v;        ///< [tile, width]
  A* score;    ///< [keys, queries]
  A* factor;   ///< factors of dropout, [keys, queries]
  A* rescale;  ///< factors for sums relative to the old maxima, [queries]
};

/// Scores of columns [q, q + column_grain) to exp(score - maximum) times dropout's factor; updates the maxima and
/// totals. `rescale` receives the factors for sums relative to the old maxima.
template <class A>
void online_softmax(const ScoreTile& t, std::int64_t q, A* score, const A* factor, A* maximum, A* total, A* rescale) {
  t.hide(q, score);
  const std::int64_t begin = t.begin_row(q), keys = t.rows(q);
  A max_score[column_grain], sum[column_grain];
  for (int lane = 0; lane < column_grain; ++lane) max_score[lane] = maximum[q + lane];
  for (std::int64_t k = begin; k < keys; ++k) {
    const A* row = score + k * tile + q;
#pragma omp simd
    for (int lane = 0; lane < column_grain; ++lane) {
      max_score[lane] = row[lane] > max_score[lane] ? row[lane] : max_score[lane];
    }
  }
#pragma omp simd
  for (int lane = 0; lane < column_grain; ++lane) {
    rescale[q + lane] = vector_exp(maximum[q + lane] - max_score[lane]);
    maximum[q + lane] = max_score[lane];
    sum[lane] = total[q + lane] * rescale[q + lane];
  }
  for (std::int64_t k = begin; k < keys; ++k) {
    A* row = score + k * tile + q;
#pragma omp simd
    for (int lane = 0; lane < column_grain; ++lane) {
      row[lane] = vector_exp(row[lane] - max_score[lane]);
      sum[lane] += row[lane];
    }
    if (factor != nullptr) {
      const A* keep = factor + k * tile + q;
#pragma omp simd
      for (int lane = 0; lane < column_grain; ++lane) row[lane] *= keep[lane];
    }
  }
  for (int lane = 0; lane < column_grain; ++lane) total[q + lane] = sum[lane];
}

/// Adds the first `seen` keys of a tile, which begins at key `k_begin`, to the sums of a tile of queries.
template <class A>
void add_keys(const AttentionProblem& problem, std::int64_t sample, std::int64_t head, std::int64_t k_begin,
              std::int64_t seen, const KeyTile<A>& keys, const QueryTile<A>& queries) {
  const ScoreTile t = score_tile(problem, sample, queries.begin, queries.queries, k_begin, seen);
  const bool drop = problem.dropout.enabled();
  multiply_tile<Update::overwrite, Order::by_row>(
      t.keys, [&](std::int64_t row) { return t.scores(row); }, keys.k, queries.width, queries.transposed, tile,
      keys.score, tile);
  if (drop) {
    t.dropout(problem.dropout, problem.dropout.head_key(problem.first_head + head), problem.dropout.samples[sample],
              problem.first_query + queries.begin, problem.first_key + k_begin, keys.factor);
  }
  const A slope = alibi_slope<A>(problem, head);
  const std::int64_t ahead = k_begin - queries.begin - problem.alibi_origin(sample);
  for (std::int64_t column = 0; column < t.columns(); column += column_grain) {
    if (problem.soft_cap > 0) t.soft_cap(column, static_cast<A>(problem.soft_cap), keys.score);
    if (slope != 0) t.add_biases(column, slope, ahead, keys.score);
    online_softmax(t, column, keys.score, drop ? keys.factor : nullptr, queries.maximum, queries.total, keys.rescale);
  }
  multiply_tile<Update::rescale_and_accumulate, Order::by_column>(
      t.queries, [&](std::int64_t row) { return t.over_keys(row); }, keys.score, tile, keys.v, queries.width,
      queries.sum, queries.width, keys.rescale);
}

/// Queries [begin, begin + tiles_together tile) of one head of one sample.
template <class T>
void attend(ScratchPool& scratch, const AttentionProblem& problem, std::int64_t sample, std::int64_t head,
            std::int64_t begin, const ConstHeads& q, const ConstHeads& k, const ConstHeads& v, const Heads& out,
            const TensorView& log_sum_exp) {
  using A = Accumulation<T>;
  const std::int64_t d = problem.head_dim, width = round_up(d, column_grain);
  const std::int64_t kv_head = head / (problem.heads / problem.kv_heads);
  const std::int64_t end = std::min(problem.queries, begin + tiles_together * tile);
  const std::int64_t end_queries = std::min(end, problem.queries_of(sample));
  ScratchPool::Lease lease(
      scratch,
      ((2 + 2 * tiles_together) * tile * width + 2 * tile * tile + (1 + 2 * tiles_together) * tile) * sizeof(A));
  const KeyTile<A> key_tile(lease, width);
  QueryTile<A> query_tiles[] = {{lease, width}, {lease, width}};
  static_assert(std::size(query_tiles) == tiles_together);
  const auto q_rows = rows_of<T>(q, sample, head);
  const ResultRows<T> out_rows(problem, out, sample, head);
  A* lse = log_sum_exp.as<A>() + (sample * problem.heads + head) * problem.queries;
  for (QueryTile<A>& queries : query_tiles) {
    queries.begin = begin + (&queries - query_tiles) * tile;
    queries.queries = std::clamp<std::int64_t>(end_queries - queries.begin, 0, tile);
    queries.rows = std::clamp<std::int64_t>(end - queries.begin, 0, tile);
    queries.clear(0);
    if (problem.results == AttentionResults::merge) {
      for (std::int64_t i = 0; i < queries.queries; ++i) queries.resume(i, lse[queries.begin + i], out_rows, d);
    }
    A* loaded = key_tile.k;  // not in use yet
    load_tile<T>(q_rows, queries.begin, queries.queries, end_queries, d, width, static_cast<A>(problem.scale), loaded);
    transpose_tile(loaded, width, round_up(queries.queries, column_grain), width, queries.transposed, tile);
  }

  const auto k_rows = rows_of<T>(k, sample, kv_head), v_rows = rows_of<T>(v, sample, kv_head);
  const std::int64_t keys = begin < end_queries ? visible_keys(problem, sample, end_queries - 1) : 0;
  const std::int64_t first_key = keys > 0 ? problem.first_key_of(sample, begin) : 0;
  for (std::int64_t k_begin = round_down(first_key, tile); k_begin < keys; k_begin += tile) {
    const std::int64_t loaded = std::min(tile, keys - k_begin);
    load_tile<T>(k_rows, k_begin, loaded, keys, d, width, A{1}, key_tile.k);
    load_tile<T>(v_rows, k_begin, loaded, keys, d, width, A{1}, key_tile.v);
    for (const QueryTile<A>& queries : query_tiles) {
      const std::int64_t seen = visible_keys(problem, sample, queries.begin + queries.queries - 1) - k_begin;
      if (queries.queries > 0 && seen > 0 && problem.first_key_of(sample, queries.begin) < k_begin + tile) {
        add_keys(problem, sample, head, k_begin, seen, key_tile, queries);
      }
    }
  }
  for (const QueryTile<A>& queries : query_tiles) queries.store(out_rows, d, lse);
}

}  // namespace trireme::cpu
