#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "src/backend/cpu/score_tile.hpp"
#include "src/backend/cpu/scratch.hpp"
#include "src/backend/cpu/vector_math.hpp"

namespace trireme::cpu {

/// Tiles of queries that a task of forward processes together for each tile of keys.
constexpr std::int64_t tiles_together = 2;

/// State of a tile of queries during the loop over the keys.
template <class A>
struct QueryTile {
  QueryTile(ScratchPool::Lease& lease, std::int64_t width)
      : transposed(lease.take<A>(tile * width)),
        sum(lease.take<A>(tile * width)),
        maximum(lease.take<A>(tile)),
        total(lease.take<A>(tile)) {}
  A* transposed;  ///< the queries times the scale, [width, tile]
  A* sum;         ///< sums of exp(score - maximum) v, [tile, width]
  A* maximum;     ///< largest scores so far
  A* total;       ///< sums of exp(score - maximum)
  std::int64_t begin = 0, queries = 0;

  /// Continues query i from earlier keys: out is a sum with the total 1 and the maximum lse.
  template <class Rows>
  void resume(std::int64_t i, A lse, const Rows& out_rows, std::int64_t d, std::int64_t width) {
    if (lse == -std::numeric_limits<A>::infinity()) return;  // no earlier key
    maximum[i] = lse;
    total[i] = 1;
    std::copy_n(out_rows.merged(begin + i), d, sum + i * width);
  }
};

/// Scores of columns [q, q + column_grain) to exp(score - maximum) times dropout's factor; updates the maxima and
/// totals. `rescale` receives the factors for sums relative to the old maxima.
template <class A>
void online_softmax(const ScoreTile& t, std::int64_t q, A* score, const A* factor, A* maximum, A* total, A* rescale) {
  t.hide(q, score);
  const std::int64_t keys = t.rows(q);
  A max_score[column_grain], sum[column_grain];
  for (int lane = 0; lane < column_grain; ++lane) max_score[lane] = maximum[q + lane];
  for (std::int64_t k = 0; k < keys; ++k) {
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
  for (std::int64_t k = 0; k < keys; ++k) {
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

/// Queries [begin, begin + tiles_together tile) of one head of one sample.
template <class T>
void attend(ScratchPool& scratch, const AttentionProblem& problem, std::int64_t sample, std::int64_t head,
            std::int64_t begin, const ConstHeads& q, const ConstHeads& k, const ConstHeads& v, const Heads& out,
            const TensorView& log_sum_exp) {
  using A = Accumulation<T>;
  const std::int64_t d = problem.head_dim, width = round_up(d, column_grain);
  const std::int64_t kv_head = head / (problem.heads / problem.kv_heads);
  const std::int64_t end = std::min(problem.queries, begin + tiles_together * tile);
  const std::uint64_t key = problem.dropout.head_key(problem.first_head + head);
  const bool drop = problem.dropout.enabled();
  ScratchPool::Lease lease(
      scratch,
      ((2 + 2 * tiles_together) * tile * width + 2 * tile * tile + (1 + 2 * tiles_together) * tile) * sizeof(A));
  A* k_tile = lease.take<A>(tile * width);
  A* v_tile = lease.take<A>(tile * width);
  A* score = lease.take<A>(tile * tile);
  A* factor = lease.take<A>(tile * tile);
  A* rescale = lease.take<A>(tile);
  QueryTile<A> query_tiles[] = {{lease, width}, {lease, width}};
  static_assert(std::size(query_tiles) == tiles_together);
  const auto q_rows = rows_of<T>(q, sample, head);
  const ResultRows<T> out_rows(problem, out, sample, head);
  A* lse = log_sum_exp.as<A>() + (sample * problem.heads + head) * problem.queries;
  for (QueryTile<A>& queries : query_tiles) {
    queries.begin = begin + (&queries - query_tiles) * tile;
    queries.queries = std::clamp<std::int64_t>(end - queries.begin, 0, tile);
    std::fill_n(queries.sum, tile * width, A{0});
    std::fill_n(queries.total, tile, A{0});
    // Not minus infinity, so that the difference of two is a number.
    std::fill_n(queries.maximum, tile, std::numeric_limits<A>::lowest());
    if (problem.results == AttentionResults::merge) {
      for (std::int64_t i = 0; i < queries.queries; ++i) queries.resume(i, lse[queries.begin + i], out_rows, d, width);
    }
    load_tile<T>(q_rows, queries.begin, queries.queries, end, d, width, static_cast<A>(problem.scale), k_tile);
    transpose_tile(k_tile, width, round_up(queries.queries, column_grain), width, queries.transposed, tile);
  }

  const auto k_rows = rows_of<T>(k, sample, kv_head), v_rows = rows_of<T>(v, sample, kv_head);
  const std::int64_t keys = visible_keys(problem, sample, end - 1);
  for (std::int64_t k_begin = 0; k_begin < keys; k_begin += tile) {
    const std::int64_t loaded = std::min(tile, keys - k_begin);
    load_tile<T>(k_rows, k_begin, loaded, keys, d, width, A{1}, k_tile);
    load_tile<T>(v_rows, k_begin, loaded, keys, d, width, A{1}, v_tile);
    for (QueryTile<A>& queries : query_tiles) {
      const std::int64_t seen = visible_keys(problem, sample, queries.begin + queries.queries - 1) - k_begin;
      if (queries.queries == 0 || seen <= 0) continue;
      const ScoreTile t = score_tile(problem, queries.begin, queries.queries, k_begin, seen);
      multiply_tile<Update::overwrite, Order::by_row>(
          t.keys, [&](std::int64_t row) { return t.scores(row); }, k_tile, width, queries.transposed, tile, score,
          tile);
      if (drop) {
        t.dropout(problem.dropout, key, problem.dropout.samples[sample], problem.first_query + queries.begin,
                  problem.first_key + k_begin, factor);
      }
      for (std::int64_t column = 0; column < t.columns(); column += column_grain) {
        online_softmax(t, column, score, drop ? factor : nullptr, queries.maximum, queries.total, rescale);
      }
      multiply_tile<Update::rescale_and_accumulate, Order::by_column>(
          t.queries, [&](std::int64_t row) { return t.over_keys(row); }, score, tile, v_tile, width, queries.sum, width,
          rescale);
    }
  }

  for (const QueryTile<A>& queries : query_tiles) {
    for (std::int64_t i = 0; i < queries.queries; ++i) {
      const A total = queries.total[i];
      out_rows.store(queries.begin + i, queries.sum + i * width, d, total == 0 ? A{0} : 1 / total);
      lse[queries.begin + i] = queries.maximum[i] + std::log(total);
    }
  }
}

}  // namespace trireme::cpu
