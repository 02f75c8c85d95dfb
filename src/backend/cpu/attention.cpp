#include "src/backend/kernels/attention.hpp"

#include <algorithm>
#include <vector>

#include "src/backend/cpu/attention_backward.hpp"
#include "src/backend/cpu/attention_decode.hpp"
#include "src/backend/cpu/attention_forward.hpp"
#include "src/backend/cpu/cpu_backend.hpp"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cpu {
namespace {

/// Minimum number of backward tasks, if there are enough keys to split.
constexpr std::int64_t backward_tasks = 32;

/// Division of backward into owners * splits tasks. Each owner has the keys of one head; each split of them has
/// separate sums for the gradients of queries.
struct BackwardSplits {
  BackwardSplits(const AttentionProblem& problem, std::int64_t width) : owners(problem.batch * problem.kv_heads) {
    const std::int64_t max_splits = std::max<std::int64_t>(1, (problem.keys + tile - 1) / tile);
    splits = std::clamp<std::int64_t>((backward_tasks + owners - 1) / std::max<std::int64_t>(1, owners), 1, max_splits);
    split_keys = round_up((problem.keys + splits - 1) / splits, tile);
    sum_size = round_up(problem.queries, column_grain) * width;
    split_stride = problem.batch * problem.heads * sum_size;
  }
  std::int64_t owners, splits = 1, split_keys = 0;
  std::int64_t sum_size = 0;  ///< elements of the sums of one head
  std::int64_t split_stride = 0;
};

template <class A, class T>
A dot_product(const T* a, const T* b, std::int64_t d) {
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < d; ++c) sum += static_cast<A>(a[c]) * static_cast<A>(b[c]);
  return sum;
}

class CpuAttention final : public AttentionKernels {
 public:
  explicit CpuAttention(ThreadPool& pool) : pool_(pool) {}

  std::string check_heads(DType, std::int64_t, bool) const override { return ""; }

  void attention(Stream&, const AttentionProblem& problem, ConstHeads q, ConstHeads k, ConstHeads v, Heads out,
                 TensorView log_sum_exp) override {
    check_attention("attention", problem, {q.data, k.data, v.data}, {out.data}, {log_sum_exp});
    dispatch_float(q.data.dtype(), [&]<class T>() {
      if (DecodeAttention<T>::supports(problem)) {
        return DecodeAttention<T>(problem, q, k, v, tiles_).run(pool_, out, log_sum_exp);
      }
      constexpr std::int64_t step = tiles_together * tile;
      const std::int64_t steps = (problem.queries + step - 1) / step;
      const std::int64_t heads = problem.batch * problem.heads;
      pool_.parallel_for(steps * heads, [&](std::int64_t task) {
        // The last queries have the most visible keys: they run first, to balance the threads.
        const std::int64_t begin = (steps - 1 - task / heads) * step;
        const std::int64_t sample = task % heads / problem.heads, head = task % problem.heads;
        attend<T>(tiles_, problem, sample, head, begin, q, k, v, out, log_sum_exp);
      });
    });
  }

  void attention_backward(Stream&, const AttentionProblem& problem, ConstHeads dout, ConstHeads q, ConstHeads k,
                          ConstHeads v, ConstHeads out, ConstTensorView log_sum_exp, TensorView row_dot, Heads dq,
                          Heads dk, Heads dv) override {
    check_attention("attention_backward", problem, {dout.data, q.data, k.data, v.data, out.data},
                    {dq.data, dk.data, dv.data}, {log_sum_exp, row_dot});
    dispatch_float(q.data.dtype(), [&]<class T, class A>() {
      const std::int64_t d = problem.head_dim, width = round_up(d, column_grain);
      for_query_tiles(problem, [&](std::int64_t sample, std::int64_t head, std::int64_t begin, std::int64_t end) {
        const auto a = rows_of<T>(dout, sample, head), b = rows_of<T>(out, sample, head);
        A* dot = row_dot.as<A>() + (sample * problem.heads + head) * problem.queries;
        end = std::min(end, problem.queries_of(sample));
        for (std::int64_t i = begin; i < end; ++i) dot[i] = dot_product<A>(a[i], b[i], d);
      });

      // A task owns the gradients of some keys. If it owns all keys, it also owns the gradients of the queries; else it
      // has separate sums for the queries, which are added in key order.
      const BackwardSplits plan(problem, width);
      const std::int64_t splits = plan.splits;
      ScratchPool::Lease lease(query_sums_, splits == 1 ? 0 : splits * plan.split_stride * sizeof(A));
      A* sums = lease.take<A>(splits == 1 ? 0 : splits * plan.split_stride);

      pool_.parallel_for(plan.owners * splits, [&](std::int64_t task) {
        const std::int64_t split = task / plan.owners, sample = task % plan.owners / problem.kv_heads;
        const std::int64_t kv_head = task % problem.kv_heads;
        AttentionBackwardTask<T> backward{tiles_,
                                          problem,
                                          sample,
                                          kv_head,
                                          split * plan.split_keys,
                                          (split + 1) * plan.split_keys,
                                          log_sum_exp,
                                          row_dot,
                                          dout,
                                          q,
                                          k,
                                          v,
                                          dq,
                                          dk,
                                          dv};
        const std::int64_t first_head = sample * problem.heads + kv_head * (problem.heads / problem.kv_heads);
        backward.run(splits == 1 ? nullptr : sums + split * plan.split_stride + first_head * plan.sum_size);
      });

      if (splits == 1) return;
      for_query_tiles(problem, [&](std::int64_t sample, std::int64_t head, std::int64_t begin, std::int64_t end) {
        const ResultRows<T> to(problem, dq, sample, head);
        for (std::int64_t i = begin; i < end; ++i) {
          A* sum = sums + (sample * problem.heads + head) * plan.sum_size + i * width;
          for (std::int64_t split = 1; split < splits; ++split) {
            for (std::int64_t c = 0; c < d; ++c) sum[c] += sum[split * plan.split_stride + c];
          }
          to.store_or_add(i, sum, d, static_cast<A>(problem.scale));
        }
      });
    });
  }

  void copy_heads(Stream&, const HeadsShape& shape, ConstHeads from, Heads to) override {
    check_copy_heads(from, to);
    dispatch_float(from.data.dtype(), [&]<class From>() {
      dispatch_float(to.data.dtype(), [&]<class To>() {
        if constexpr (std::is_same_v<Accumulation<From>, Accumulation<To>>) {
          pool_.parallel_ranges(shape.positions * shape.batch, 64, [&](std::int64_t begin, std::int64_t end) {
            std::vector<Accumulation<From>> buffer(static_cast<std::size_t>(shape.head_dim));
            for (std::int64_t i = begin; i < end; ++i) {
              const std::int64_t position = i / shape.batch, sample = i % shape.batch;
              const std::int64_t target = position + (shape.begins == nullptr ? 0 : shape.begins[sample]);
              for (std::int64_t head = 0; head < shape.heads; ++head) {
                const From* row = rows_of<From>(from, sample, head)[position];
                store_row(row_in(row, shape.head_dim, buffer.data()), shape.head_dim,
                          rows_of<To>(to, sample, head)[target]);
              }
            }
          });
        }
      });
    });
  }

 private:
  /// Calls `visit(sample, head, begin, end)` for the tiles of queries of every head, on all threads.
  template <class Visit>
  void for_query_tiles(const AttentionProblem& problem, Visit&& visit) {
    const std::int64_t tiles = (problem.queries + tile - 1) / tile;
    pool_.parallel_for(problem.batch * problem.heads * tiles, [&](std::int64_t task) {
      const std::int64_t index = task / tiles, begin = task % tiles * tile;
      visit(index / problem.heads, index % problem.heads, begin, std::min(problem.queries, begin + tile));
    });
  }

  ThreadPool& pool_;
  ScratchPool tiles_;
  ScratchPool query_sums_;
};

}  // namespace

std::unique_ptr<AttentionKernels> make_attention(ThreadPool& pool) { return std::make_unique<CpuAttention>(pool); }

}  // namespace trireme::cpu
