#pragma once

#include <algorithm>
#include <limits>

#include "src/backend/cpu/score_tile.hpp"
#include "src/backend/cpu/scratch.hpp"
#include "src/base/vector_math.hpp"

namespace trireme::cpu {

/// Keys whose gradients a task keeps in the L2 cache at a time.
constexpr std::int64_t key_chunk = 256;

/// Backward of the query heads of one kv head of one sample over keys [k_begin, k_end).
template <class T>
struct AttentionBackwardTask {
  using A = Accumulation<T>;
  ScratchPool& scratch;
  const AttentionProblem& problem;
  std::int64_t sample, kv_head, k_begin, k_end;
  const ConstTensorView& log_sum_exp;
  const TensorView& row_dot;
  const ConstHeads &dout, &q, &k, &v;
  const Heads &dq, &dk, &dv;

  /// `query_sums` [group, queries rounded up to column_grain, width] receives the sums of the queries' gradients;
  /// where it is nullptr they are complete and written to dq.
  void run(A* query_sums) {
    const std::int64_t d = problem.head_dim, width = round_up(d, column_grain);
    const std::int64_t heads_per_kv_head = problem.heads / problem.kv_heads;
    const std::int64_t sum_size = round_up(problem.queries, column_grain) * width;
    ScratchPool::Lease lease(scratch, ((query_sums == nullptr ? heads_per_kv_head * sum_size : 0) +
                                       (4 * key_chunk + 4 * tile) * width + 4 * tile * tile + 2 * tile) *
                                          sizeof(A));
    const bool complete = query_sums == nullptr;
    if (complete) query_sums = lease.take<A>(heads_per_kv_head * sum_size);
    std::fill_n(query_sums, heads_per_kv_head * sum_size, A{0});
    A* k_chunk = lease.take<A>(key_chunk * width);
    A* v_chunk = lease.take<A>(key_chunk * width);
    A* dk_chunk = lease.take<A>(key_chunk * width);
    A* dv_chunk = lease.take<A>(key_chunk * width);
    Tiles tiles(lease, width);
    const std::int64_t all_keys = problem.keys_of(sample), all_queries = problem.queries_of(sample);
    for (std::int64_t begin = k_begin; begin < std::min(k_end, problem.keys); begin += key_chunk) {
      const std::int64_t owned = std::min({key_chunk, k_end - begin, problem.keys - begin});
      const std::int64_t keys = std::clamp<std::int64_t>(all_keys - begin, 0, owned);  // without padding
      load_tile<T>(rows_of<T>(k, sample, kv_head), begin, keys, all_keys, d, width, A{1}, k_chunk);
      load_tile<T>(rows_of<T>(v, sample, kv_head), begin, keys, all_keys, d, width, A{1}, v_chunk);
      std::fill_n(dk_chunk, key_chunk * width, A{0});
      std::fill_n(dv_chunk, key_chunk * width, A{0});
      for (std::int64_t member = 0; member < heads_per_kv_head; ++member) {
        const std::int64_t head = kv_head * heads_per_kv_head + member;
        for (std::int64_t q_begin = 0; q_begin < all_queries; q_begin += tile) {
          const std::int64_t queries = std::min(tile, all_queries - q_begin);
          std::int64_t seen = visible_keys(problem, sample, q_begin + queries - 1) - begin;
          if (seen <= 0) continue;
          const std::int64_t first_key = problem.first_key_of(sample, q_begin) - begin;
          if (first_key >= keys) break;                      // and so for the queries after these
          seen = std::min(keys, round_up(seen, tile_rows));  // sums over queries are formed for full groups of keys
          tiles.load(*this, head, q_begin, queries);
          A* dq_tile = query_sums + member * sum_size + q_begin * width;
          for (std::int64_t first = round_down(std::max<std::int64_t>(first_key, 0), tile); first < seen;
               first += tile) {
            const ScoreTile t = score_tile(problem, sample, q_begin, queries, begin + first, seen - first);
            tiles.gradients(*this, t, head, q_begin, begin + first, k_chunk + first * width, v_chunk + first * width,
                            dq_tile, dk_chunk + first * width, dv_chunk + first * width);
          }
        }
      }
      const ResultRows<T> dk_rows(problem, dk, sample, kv_head), dv_rows(problem, dv, sample, kv_head);
      for (std::int64_t i = 0; i < owned; ++i) {  // gradients of padding are still 0
        dk_rows.store_or_add(begin + i, dk_chunk + i * width, d, A{1});
        dv_rows.store_or_add(begin + i, dv_chunk + i * width, d, A{1});
      }
    }
    if (!complete) return;
    for (std::int64_t member = 0; member < heads_per_kv_head; ++member) {
      const ResultRows<T> to(problem, dq, sample, kv_head * heads_per_kv_head + member);
      for (std::int64_t i = 0; i < problem.queries; ++i) {
        to.store_or_add(i, query_sums + member * sum_size + i * width, d, static_cast<A>(problem.scale));
      }
    }
  }

  /// Results of one tile of queries, and the scores of one tile.
  struct Tiles {
    Tiles(ScratchPool::Lease& lease, std::int64_t width)
        : q(lease.take<A>(tile * width)),
          q_transposed(lease.take<A>(tile * width)),
          dout(lease.take<A>(tile * width)),
          dout_transposed(lease.take<A>(tile * width)),
          score(lease.take<A>(tile * tile)),
          dscore(lease.take<A>(tile * tile)),
          factor(lease.take<A>(tile * tile)),
          slope(lease.take<A>(tile * tile)),
          lse(lease.take<A>(tile)),
          dot(lease.take<A>(tile)) {}
    A *q, *q_transposed, *dout, *dout_transposed, *score, *dscore, *factor, *slope, *lse, *dot;

    void load(const AttentionBackwardTask& task, std::int64_t head, std::int64_t begin, std::int64_t queries) {
      const std::int64_t d = task.problem.head_dim, width = round_up(d, column_grain);
      const std::int64_t padded = round_up(queries, column_grain);
      load_tile<T>(rows_of<T>(task.q, task.sample, head), begin, queries, task.problem.queries, d, width,
                   static_cast<A>(task.problem.scale), q);
      load_tile<T>(rows_of<T>(task.dout, task.sample, head), begin, queries, task.problem.queries, d, width, A{1},
                   dout);
      transpose_tile(q, width, padded, width, q_transposed, tile);
      transpose_tile(dout, width, padded, width, dout_transposed, tile);
      const std::int64_t index = (task.sample * task.problem.heads + head) * task.problem.queries + begin;
      std::fill_n(lse, tile, A{0});
      std::fill_n(dot, tile, A{0});
      std::copy_n(task.log_sum_exp.template as<A>() + index, queries, lse);
      std::copy_n(task.row_dot.template as<A>() + index, queries, dot);
      // A query without visible keys has a sum of 0. Its scores are masked, and remain so with any finite number here.
      std::replace(lse, lse + queries, -std::numeric_limits<A>::infinity(), A{0});
    }

    void gradients(const AttentionBackwardTask& task, const ScoreTile& t, std::int64_t head, std::int64_t q_begin,
                   std::int64_t k_begin, const A* k_tile, const A* v_tile, A* dq_tile, A* dk_tile, A* dv_tile) {
      const AttentionProblem& problem = task.problem;
      const auto scores = [&](std::int64_t row) { return t.scores(row); };
      const auto over_queries = [&](std::int64_t row) { return t.over_queries(row); };
      const auto over_keys = [&](std::int64_t row) { return t.over_keys(row); };
      multiply_tile<Update::overwrite, Order::by_row>(t.keys, scores, k_tile, t.width, q_transposed, tile, score, tile);
      multiply_tile<Update::overwrite, Order::by_row>(t.keys, scores, v_tile, t.width, dout_transposed, tile, dscore,
                                                      tile);
      const bool drop = problem.dropout.enabled();
      if (drop) {
        t.dropout(problem.dropout, problem.dropout.head_key(problem.first_head + head),
                  problem.dropout.samples[task.sample], problem.first_query + q_begin, problem.first_key + k_begin,
                  factor);
      }
      const A cap = static_cast<A>(problem.soft_cap), bias = alibi_slope<A>(problem, head);
      const std::int64_t ahead = k_begin - q_begin - problem.alibi_origin(task.sample);
      for (std::int64_t column = 0; column < t.columns(); column += column_grain) {
        if (cap > 0) t.soft_cap(column, cap, score);
        t.hide(column, score);
        if (cap > 0) find_slopes(t, column, cap);
        if (bias != 0) t.add_biases(column, bias, ahead, score);
        differentiate_softmax(t, column, drop);
        if (cap > 0) apply_slopes(t, column);
      }
      multiply_tile<Update::accumulate, Order::by_row>(t.keys, over_queries, score, tile, dout, t.width, dv_tile,
                                                       t.width);
      multiply_tile<Update::accumulate, Order::by_row>(t.keys, over_queries, dscore, tile, q, t.width, dk_tile,
                                                       t.width);
      multiply_tile<Update::accumulate, Order::by_column>(t.queries, over_keys, dscore, tile, k_tile, t.width, dq_tile,
                                                          t.width);
    }

    /// slope = derivative of the soft cap at the capped and masked scores, for columns [q, q + column_grain). It is 0
    /// at masked ones.
    void find_slopes(const ScoreTile& t, std::int64_t q, A cap) {
      const A reciprocal = 1 / cap;
      for (std::int64_t k = t.begin_row(q); k < t.rows(q); ++k) {
        const A* from = score + k * tile + q;
        A* to = slope + k * tile + q;
#pragma omp simd
        for (int lane = 0; lane < column_grain; ++lane) {
          const A share = (from[lane] > -cap ? from[lane] : -cap) * reciprocal;
          to[lane] = 1 - share * share;
        }
      }
    }
    void apply_slopes(const ScoreTile& t, std::int64_t q) {
      for (std::int64_t k = t.begin_row(q); k < t.rows(q); ++k) {
        const A* factors = slope + k * tile + q;
        A* to = dscore + k * tile + q;
#pragma omp simd
        for (int lane = 0; lane < column_grain; ++lane) to[lane] *= factors[lane];
      }
    }

    /// score = dropped probability, dscore = its gradient through the softmax, for columns [q, q + column_grain) of
    /// masked scores.
    void differentiate_softmax(const ScoreTile& t, std::int64_t q, bool drop) {
      for (std::int64_t k = t.begin_row(q); k < t.rows(q); ++k) {
        A* p = score + k * tile + q;
        A* dp = dscore + k * tile + q;
        const A* keep = factor + k * tile + q;
        if (drop) {
#pragma omp simd
          for (int lane = 0; lane < column_grain; ++lane) {
            const A probability = vector_exp(p[lane] - lse[q + lane]);
            p[lane] = probability * keep[lane];
            dp[lane] = probability * (dp[lane] * keep[lane] - dot[q + lane]);
          }
        } else {
#pragma omp simd
          for (int lane = 0; lane < column_grain; ++lane) {
            const A probability = vector_exp(p[lane] - lse[q + lane]);
            p[lane] = probability;
            dp[lane] = probability * (dp[lane] - dot[q + lane]);
          }
        }
      }
    }
  };
};

}  // namespace trireme::cpu
