#include "src/backend/kernels/attention.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "src/backend/cpu/cpu_backend.hpp"
#include "src/backend/cpu/score_tile.hpp"
#include "src/backend/cpu/scratch.hpp"
#include "src/backend/cpu/vector_math.hpp"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cpu {
namespace {

/// Tiles of queries that a task of forward takes over the keys together.
constexpr std::int64_t tiles_together = 2;
/// Keys whose gradients a task of backward keeps in the second cache at a time.
constexpr std::int64_t key_chunk = 256;
/// Tasks backward makes at least, where the keys are enough, by splitting them.
constexpr std::int64_t backward_tasks = 32;

class CpuAttention final : public AttentionKernels {
 public:
  explicit CpuAttention(ThreadPool& pool) : pool_(pool) {}

  void attention(Stream&, const AttentionProblem& problem, ConstHeads q, ConstHeads k, ConstHeads v, Heads out,
                 TensorView log_sum_exp) override {
    check_attention("attention", problem, {q.data, k.data, v.data, out.data}, {log_sum_exp});
    dispatch_float(q.data.dtype(), [&]<class T>() {
      constexpr std::int64_t step = tiles_together * tile;
      const std::int64_t steps = (problem.queries + step - 1) / step;
      const std::int64_t heads = problem.batch * problem.heads;
      pool_.parallel_for(steps * heads, [&](std::int64_t task) {
        // The last queries see the most keys: they go first, so that the threads end together.
        const std::int64_t begin = (steps - 1 - task / heads) * step;
        const std::int64_t sample = task % heads / problem.heads, head = task % problem.heads;
        forward_task<T>(problem, sample, head, begin, q, k, v, out, log_sum_exp);
      });
    });
  }

  void attention_backward(Stream&, const AttentionProblem& problem, ConstHeads dout, ConstHeads q, ConstHeads k,
                          ConstHeads v, ConstHeads out, ConstTensorView log_sum_exp, TensorView row_dot, Heads dq,
                          Heads dk, Heads dv) override {
    check_attention("attention_backward", problem,
                    {dout.data, q.data, k.data, v.data, out.data, dq.data, dk.data, dv.data}, {log_sum_exp, row_dot});
    dispatch_float(q.data.dtype(), [&]<class T>() {
      using A = Accumulation<T>;
      const std::int64_t d = problem.head_dim, width = round_up(d, column_grain);
      const std::int64_t tiles = (problem.queries + tile - 1) / tile;
      const auto for_query_tiles = [&](auto&& visit) {
        pool_.parallel_for(problem.batch * problem.heads * tiles, [&](std::int64_t task) {
          const std::int64_t index = task / tiles, begin = task % tiles * tile;
          visit(index / problem.heads, index % problem.heads, begin, std::min(problem.queries, begin + tile));
        });
      };

      for_query_tiles([&](std::int64_t sample, std::int64_t head, std::int64_t begin, std::int64_t end) {
        const auto a = rows_of<T>(dout, sample, head), b = rows_of<T>(out, sample, head);
        A* dot = row_dot.as<A>() + (sample * problem.heads + head) * problem.queries;
        for (std::int64_t i = begin; i < end; ++i) {
          A sum = 0;
#pragma omp simd reduction(+ : sum)
          for (std::int64_t c = 0; c < d; ++c) sum += static_cast<A>(a[i][c]) * static_cast<A>(b[i][c]);
          dot[i] = sum;
        }
      });

      // A task owns the gradients of some keys, and of the queries where it owns all keys; else it has sums of its
      // own for the queries, which are added in the order of the keys.
      const std::int64_t owners = problem.batch * problem.kv_heads;
      const std::int64_t most_splits = std::max<std::int64_t>(1, (problem.keys + tile - 1) / tile);
      const std::int64_t splits =
          std::clamp<std::int64_t>((backward_tasks + owners - 1) / std::max<std::int64_t>(1, owners), 1, most_splits);
      const std::int64_t split_keys = round_up((problem.keys + splits - 1) / splits, tile);
      const std::int64_t sum_size = round_up(problem.queries, column_grain) * width;  // of one head
      const std::int64_t split_stride = problem.batch * problem.heads * sum_size;
      ScratchPool::Lease lease(query_sums_, splits == 1 ? 0 : splits * split_stride * sizeof(A));
      A* sums = lease.take<A>(splits == 1 ? 0 : splits * split_stride);

      pool_.parallel_for(owners * splits, [&](std::int64_t task) {
        const std::int64_t split = task / owners, sample = task % owners / problem.kv_heads;
        const std::int64_t kv_head = task % problem.kv_heads;
        BackwardTask<T>{*this,
                        problem,
                        sample,
                        kv_head,
                        split * split_keys,
                        (split + 1) * split_keys,
                        log_sum_exp,
                        row_dot,
                        dout,
                        q,
                        k,
                        v,
                        dq,
                        dk,
                        dv}
            .run(splits == 1 ? nullptr
                             : sums + split * split_stride +
                                   (sample * problem.heads + kv_head * (problem.heads / problem.kv_heads)) * sum_size);
      });

      if (splits == 1) return;
      for_query_tiles([&](std::int64_t sample, std::int64_t head, std::int64_t begin, std::int64_t end) {
        const auto to = rows_of<T>(dq, sample, head);
        for (std::int64_t i = begin; i < end; ++i) {
          A* sum = sums + (sample * problem.heads + head) * sum_size + i * width;
          for (std::int64_t split = 1; split < splits; ++split) {
            for (std::int64_t c = 0; c < d; ++c) sum[c] += sum[split * split_stride + c];
          }
          store_scaled(sum, d, static_cast<A>(problem.scale), to[i]);
        }
      });
    });
  }

 private:
  /// A tile of queries on its way over the keys.
  template <class A>
  struct QueryTile {
    QueryTile(ScratchPool::Lease& lease, std::int64_t width)
        : transposed(lease.take<A>(tile * width)),
          sum(lease.take<A>(tile * width)),
          maximum(lease.take<A>(tile)),
          total(lease.take<A>(tile)) {}
    A* transposed;  ///< the queries times the scale, [width, tile]
    A* sum;         ///< of exp(score - maximum) v, [tile, width]
    A* maximum;     ///< of the scores so far
    A* total;       ///< of exp(score - maximum)
    std::int64_t begin = 0, queries = 0;
  };

  /// Queries [begin, begin + tiles_together tile) of one head of one sample.
  template <class T>
  void forward_task(const AttentionProblem& problem, std::int64_t sample, std::int64_t head, std::int64_t begin,
                    ConstHeads q, ConstHeads k, ConstHeads v, Heads out, TensorView log_sum_exp) {
    using A = Accumulation<T>;
    const std::int64_t d = problem.head_dim, width = round_up(d, column_grain);
    const std::int64_t kv_head = head / (problem.heads / problem.kv_heads);
    const std::int64_t end = std::min(problem.queries, begin + tiles_together * tile);
    const std::uint64_t key = problem.dropout.head_key(problem.first_head + head);
    const bool drop = problem.dropout.enabled();
    ScratchPool::Lease lease(
        tiles_,
        ((2 + 2 * tiles_together) * tile * width + 2 * tile * tile + (1 + 2 * tiles_together) * tile) * sizeof(A));
    A* k_tile = lease.take<A>(tile * width);
    A* v_tile = lease.take<A>(tile * width);
    A* score = lease.take<A>(tile * tile);
    A* factor = lease.take<A>(tile * tile);
    A* rescale = lease.take<A>(tile);
    QueryTile<A> query_tiles[] = {{lease, width}, {lease, width}};
    static_assert(std::size(query_tiles) == tiles_together);
    const auto q_rows = rows_of<T>(q, sample, head);
    for (QueryTile<A>& queries : query_tiles) {
      queries.begin = begin + (&queries - query_tiles) * tile;
      queries.queries = std::clamp<std::int64_t>(end - queries.begin, 0, tile);
      std::fill_n(queries.sum, tile * width, A{0});
      std::fill_n(queries.total, tile, A{0});
      // Not minus infinity, so that the difference of two is a number.
      std::fill_n(queries.maximum, tile, std::numeric_limits<A>::lowest());
      load_tile<T>(q_rows, queries.begin, queries.queries, end, d, width, static_cast<A>(problem.scale), k_tile);
      transpose_tile(k_tile, width, round_up(queries.queries, column_grain), width, queries.transposed, tile);
    }

    const auto k_rows = rows_of<T>(k, sample, kv_head), v_rows = rows_of<T>(v, sample, kv_head);
    const std::int64_t keys = visible_keys(problem, end - 1);
    for (std::int64_t k_begin = 0; k_begin < keys; k_begin += tile) {
      const std::int64_t loaded = std::min(tile, keys - k_begin);
      load_tile<T>(k_rows, k_begin, loaded, keys, d, width, A{1}, k_tile);
      load_tile<T>(v_rows, k_begin, loaded, keys, d, width, A{1}, v_tile);
      for (QueryTile<A>& queries : query_tiles) {
        const std::int64_t seen = visible_keys(problem, queries.begin + queries.queries - 1) - k_begin;
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
            t.queries, [&](std::int64_t row) { return t.over_keys(row); }, score, tile, v_tile, width, queries.sum,
            width, rescale);
      }
    }

    const auto out_rows = rows_of<T>(out, sample, head);
    A* lse = log_sum_exp.as<A>() + (sample * problem.heads + head) * problem.queries;
    for (const QueryTile<A>& queries : query_tiles) {
      for (std::int64_t i = 0; i < queries.queries; ++i) {
        const A total = queries.total[i];
        store_scaled(queries.sum + i * width, d, total == 0 ? A{0} : 1 / total, out_rows[queries.begin + i]);
        lse[queries.begin + i] = queries.maximum[i] + std::log(total);
      }
    }
  }

  /// Scores of columns [q, q + column_grain) to exp(score - maximum) times dropout's factor; brings the maxima and
  /// totals up to date, and leaves in `rescale` what sums made with the old maxima are to be multiplied by.
  template <class A>
  static void online_softmax(const ScoreTile& t, std::int64_t q, A* score, const A* factor, A* maximum, A* total,
                             A* rescale) {
    t.hide(q, score);
    const std::int64_t keys = t.rows(q);
    A largest[column_grain], sum[column_grain];
    for (int lane = 0; lane < column_grain; ++lane) largest[lane] = maximum[q + lane];
    for (std::int64_t k = 0; k < keys; ++k) {
      const A* row = score + k * tile + q;
#pragma omp simd
      for (int lane = 0; lane < column_grain; ++lane) {
        largest[lane] = row[lane] > largest[lane] ? row[lane] : largest[lane];
      }
    }
#pragma omp simd
    for (int lane = 0; lane < column_grain; ++lane) {
      rescale[q + lane] = vector_exp(maximum[q + lane] - largest[lane]);
      maximum[q + lane] = largest[lane];
      sum[lane] = total[q + lane] * rescale[q + lane];
    }
    for (std::int64_t k = 0; k < keys; ++k) {
      A* row = score + k * tile + q;
#pragma omp simd
      for (int lane = 0; lane < column_grain; ++lane) {
        row[lane] = vector_exp(row[lane] - largest[lane]);
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

  /// Backward of the query heads of one kv head of one sample over keys [k_begin, k_end).
  template <class T>
  struct BackwardTask {
    using A = Accumulation<T>;
    CpuAttention& kernels;
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
      const std::int64_t group = problem.heads / problem.kv_heads;
      const std::int64_t sum_size = round_up(problem.queries, column_grain) * width;
      ScratchPool::Lease lease(kernels.tiles_, ((query_sums == nullptr ? group * sum_size : 0) +
                                                (4 * key_chunk + 4 * tile) * width + 3 * tile * tile + 2 * tile) *
                                                   sizeof(A));
      const bool complete = query_sums == nullptr;
      if (complete) query_sums = lease.take<A>(group * sum_size);
      std::fill_n(query_sums, group * sum_size, A{0});
      A* k_chunk = lease.take<A>(key_chunk * width);
      A* v_chunk = lease.take<A>(key_chunk * width);
      A* dk_chunk = lease.take<A>(key_chunk * width);
      A* dv_chunk = lease.take<A>(key_chunk * width);
      Tiles tiles(lease, width);
      for (std::int64_t begin = k_begin; begin < std::min(k_end, problem.keys); begin += key_chunk) {
        const std::int64_t keys = std::min({key_chunk, k_end - begin, problem.keys - begin});
        load_tile<T>(rows_of<T>(k, sample, kv_head), begin, keys, problem.keys, d, width, A{1}, k_chunk);
        load_tile<T>(rows_of<T>(v, sample, kv_head), begin, keys, problem.keys, d, width, A{1}, v_chunk);
        std::fill_n(dk_chunk, key_chunk * width, A{0});
        std::fill_n(dv_chunk, key_chunk * width, A{0});
        for (std::int64_t member = 0; member < group; ++member) {
          const std::int64_t head = kv_head * group + member;
          for (std::int64_t q_begin = 0; q_begin < problem.queries; q_begin += tile) {
            const std::int64_t queries = std::min(tile, problem.queries - q_begin);
            std::int64_t seen = visible_keys(problem, q_begin + queries - 1) - begin;
            if (seen <= 0) continue;
            seen = std::min(keys, round_up(seen, tile_rows));  // sums over queries are made for whole groups of keys
            tiles.load(*this, head, q_begin, queries);
            A* dq_tile = query_sums + member * sum_size + q_begin * width;
            for (std::int64_t first = 0; first < seen; first += tile) {
              const ScoreTile t = score_tile(problem, q_begin, queries, begin + first, seen - first);
              tiles.gradients(*this, t, head, q_begin, begin + first, k_chunk + first * width, v_chunk + first * width,
                              dq_tile, dk_chunk + first * width, dv_chunk + first * width);
            }
          }
        }
        const auto dk_rows = rows_of<T>(dk, sample, kv_head), dv_rows = rows_of<T>(dv, sample, kv_head);
        for (std::int64_t i = 0; i < keys; ++i) {
          store_row(dk_chunk + i * width, d, dk_rows[begin + i]);
          store_row(dv_chunk + i * width, d, dv_rows[begin + i]);
        }
      }
      if (!complete) return;
      for (std::int64_t member = 0; member < group; ++member) {
        const auto to = rows_of<T>(dq, sample, kv_head * group + member);
        for (std::int64_t i = 0; i < problem.queries; ++i) {
          store_scaled(query_sums + member * sum_size + i * width, d, static_cast<A>(problem.scale), to[i]);
        }
      }
    }

    /// What belongs to one tile of queries, and the scores of one tile.
    struct Tiles {
      Tiles(ScratchPool::Lease& lease, std::int64_t width)
          : q(lease.take<A>(tile * width)),
            q_transposed(lease.take<A>(tile * width)),
            dout(lease.take<A>(tile * width)),
            dout_transposed(lease.take<A>(tile * width)),
            score(lease.take<A>(tile * tile)),
            dscore(lease.take<A>(tile * tile)),
            factor(lease.take<A>(tile * tile)),
            lse(lease.take<A>(tile)),
            dot(lease.take<A>(tile)) {}
      A *q, *q_transposed, *dout, *dout_transposed, *score, *dscore, *factor, *lse, *dot;

      void load(const BackwardTask& task, std::int64_t head, std::int64_t begin, std::int64_t queries) {
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
        // A query that sees no key has a sum of 0; its scores are hidden, and stay so with any finite number here.
        std::replace(lse, lse + queries, -std::numeric_limits<A>::infinity(), A{0});
      }

      void gradients(const BackwardTask& task, const ScoreTile& t, std::int64_t head, std::int64_t q_begin,
                     std::int64_t k_begin, const A* k_tile, const A* v_tile, A* dq_tile, A* dk_tile, A* dv_tile) {
        const AttentionProblem& problem = task.problem;
        const auto scores = [&](std::int64_t row) { return t.scores(row); };
        const auto over_queries = [&](std::int64_t row) { return t.over_queries(row); };
        const auto over_keys = [&](std::int64_t row) { return t.over_keys(row); };
        multiply_tile<Update::overwrite, Order::by_row>(t.keys, scores, k_tile, t.width, q_transposed, tile, score,
                                                        tile);
        multiply_tile<Update::overwrite, Order::by_row>(t.keys, scores, v_tile, t.width, dout_transposed, tile, dscore,
                                                        tile);
        const bool drop = problem.dropout.enabled();
        if (drop) {
          t.dropout(problem.dropout, problem.dropout.head_key(problem.first_head + head),
                    problem.dropout.samples[task.sample], problem.first_query + q_begin, problem.first_key + k_begin,
                    factor);
        }
        for (std::int64_t column = 0; column < t.columns(); column += column_grain) {
          differentiate_softmax(t, column, drop);
        }
        multiply_tile<Update::accumulate, Order::by_row>(t.keys, over_queries, score, tile, dout, t.width, dv_tile,
                                                         t.width);
        multiply_tile<Update::accumulate, Order::by_row>(t.keys, over_queries, dscore, tile, q, t.width, dk_tile,
                                                         t.width);
        multiply_tile<Update::accumulate, Order::by_column>(t.queries, over_keys, dscore, tile, k_tile, t.width,
                                                            dq_tile, t.width);
      }

      /// score = dropped probability, dscore = its gradient through the softmax, for columns [q, q + column_grain).
      void differentiate_softmax(const ScoreTile& t, std::int64_t q, bool drop) {
        t.hide(q, score);
        for (std::int64_t k = 0; k < t.rows(q); ++k) {
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

  ThreadPool& pool_;
  ScratchPool tiles_;
  ScratchPool query_sums_;
};

}  // namespace

std::unique_ptr<AttentionKernels> make_attention(ThreadPool& pool) { return std::make_unique<CpuAttention>(pool); }

}  // namespace trireme::cpu
