#include "src/backend/kernels/cross_entropy.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "src/backend/cpu/cpu_backend.hpp"
#include "src/backend/cpu/rows.hpp"
#include "src/backend/kernels/shape_checks.hpp"
#include "src/base/exponentials.hpp"

namespace trireme::cpu {
namespace {

/// Columns converted at a time: they stay in the L1 cache.
constexpr std::int64_t column_block = 1024;

/// Number of x[c], c < n, that a prediction prefers to `chosen` of class `target`; `target` may lie outside.
template <class A>
A rivals_of(const A* x, std::int64_t n, A chosen, std::int64_t target) {
  A count = 0;
#pragma omp simd reduction(+ : count)
  for (std::int64_t c = 0; c < n; ++c) {
    const bool behind = x[c] < chosen || (x[c] == chosen && c > target);
    count += behind || c == target ? A{0} : A{1};
  }
  return count;
}

/// Derivative of a soft cap where its result is `capped`; curvature = 1 / cap^2.
template <class A>
A slope_of_cap(A capped, A curvature) {
  return 1 - capped * capped * curvature;
}

class CpuCrossEntropy final : public CrossEntropyKernels {
 public:
  explicit CpuCrossEntropy(ThreadPool& pool) : pool_(pool) {}

  void statistics(Stream&, ConstTensorView logits, VocabularyShard shard, ConstTensorView targets, TensorView maximum,
                  TensorView sum_exp, TensorView target_logit) override {
    check_cross_entropy("cross entropy's statistics", logits, shard, {maximum, sum_exp, target_logit});
    check_targets("cross entropy's statistics", logits, targets);
    dispatch_float(logits.dtype(), [&]<class T, class A>() {
      constexpr A infinity = std::numeric_limits<A>::infinity();
      const std::int64_t columns = logits.shape()[1];
      const T* all = logits.as<T>();
      const std::int32_t* target = targets.as<std::int32_t>();
      A* maxima = maximum.as<A>();
      A* sums = sum_exp.as<A>();
      A* chosen = target_logit.as<A>();
      pool_.parallel_for(logits.shape()[0], [&](std::int64_t i) {
        const T* row = all + i * columns;
        A max_logit = -infinity, sum = 0;
        for_column_blocks(row, shard.classes, [&](const A* x, std::int64_t, std::int64_t n) {
          const A here = max_of(x, n);
          if (here > max_logit) {
            sum *= std::exp(max_logit - here);
            max_logit = here;
          }
          sum += sum_of_exponentials(x, n, max_logit == -infinity ? A{0} : max_logit);
        });
        maxima[i] = max_logit;
        sums[i] = sum;
        const std::int64_t c = target[i] - shard.first_class;
        chosen[i] = c >= 0 && c < shard.classes ? static_cast<A>(row[c]) : A{0};
      });
    });
  }

  void rescale(Stream&, ConstTensorView own_maximum, ConstTensorView maximum, TensorView sum_exp) override {
    check_rescale(own_maximum, maximum, sum_exp);
    dispatch_float(sum_exp.dtype(), [&]<class T, class A>() {
      const A* own = own_maximum.as<A>();
      const A* max_logits = maximum.as<A>();
      A* sums = sum_exp.as<A>();
      for (std::int64_t i = 0; i < sum_exp.numel(); ++i) sums[i] *= std::exp(own[i] - max_logits[i]);
    });
  }

  void losses(Stream&, ConstTensorView maximum, ConstTensorView sum_exp, ConstTensorView target_logit,
              ConstTensorView weights, TensorView losses) override {
    dispatch_float(losses.dtype(), [&]<class T, class A>() {
      const A* max_logits = maximum.as<A>();
      const A* sums = sum_exp.as<A>();
      const A* chosen = target_logit.as<A>();
      const A* weight = weights.as<A>();
      A* loss = losses.as<A>();
      for (std::int64_t i = 0; i < losses.numel(); ++i) {
        loss[i] = weight[i] == 0 ? A{0} : weight[i] * (std::log(sums[i]) + max_logits[i] - chosen[i]);
      }
    });
  }

  void rivals(Stream&, ConstTensorView logits, VocabularyShard shard, ConstTensorView targets,
              ConstTensorView target_logit, TensorView rivals) override {
    check_cross_entropy("cross entropy's rivals", logits, shard, {target_logit, rivals});
    check_targets("cross entropy's rivals", logits, targets);
    dispatch_float(logits.dtype(), [&]<class T, class A>() {
      const std::int64_t columns = logits.shape()[1];
      const T* all = logits.as<T>();
      const std::int32_t* target = targets.as<std::int32_t>();
      const A* chosen = target_logit.as<A>();
      A* counts = rivals.as<A>();
      pool_.parallel_for(logits.shape()[0], [&](std::int64_t i) {
        A count = 0;
        for_column_blocks(all + i * columns, shard.classes, [&](const A* x, std::int64_t begin, std::int64_t n) {
          count += rivals_of(x, n, chosen[i], target[i] - shard.first_class - begin);
        });
        counts[i] = count;
      });
    });
  }

  void backward(Stream&, VocabularyShard shard, ConstTensorView maximum, ConstTensorView sum_exp,
                ConstTensorView targets, ConstTensorView loss_gradient, double soft_cap, TensorView logits) override {
    check_cross_entropy("cross entropy's backward", logits, shard, {maximum, sum_exp, loss_gradient});
    check_targets("cross entropy's backward", logits, targets);
    dispatch_float(logits.dtype(), [&]<class T, class A>() {
      const std::int64_t columns = logits.shape()[1];
      T* all = logits.as<T>();
      const A* max_logits = maximum.as<A>();
      const A* sums = sum_exp.as<A>();
      const std::int32_t* target = targets.as<std::int32_t>();
      const A* gradients = loss_gradient.as<A>();
      const A curvature = soft_cap > 0 ? static_cast<A>(1 / (soft_cap * soft_cap)) : A{0};
      pool_.parallel_for(logits.shape()[0], [&](std::int64_t i) {
        T* row = all + i * columns;
        const A shift = max_logits[i], gradient = gradients[i], factor = gradient / sums[i];
        const std::int64_t c = target[i] - shard.first_class;
        const bool own = c >= 0 && c < shard.classes;
        A at_target = own ? vector_exp(static_cast<A>(row[c]) - shift) * factor - gradient : A{0};
        if (own && soft_cap > 0) at_target *= slope_of_cap(static_cast<A>(row[c]), curvature);
        for_column_blocks(row, shard.classes, [&](const A* x, std::int64_t begin, std::int64_t n) {
          A buffer[column_block];
          A* out = row_out(row + begin, buffer);
          if (soft_cap > 0) {
            A slope[column_block];  // out may be x
            for (std::int64_t j = 0; j < n; ++j) slope[j] = slope_of_cap(x[j], curvature);
            scaled_exponentials(x, n, shift, factor, out);
            for (std::int64_t j = 0; j < n; ++j) out[j] *= slope[j];
          } else {
            scaled_exponentials(x, n, shift, factor, out);
          }
          finish_row(out, n, row + begin);
        });
        if (own) row[c] = static_cast<T>(at_target);
        for (std::int64_t padding = shard.classes; padding < columns; ++padding) row[padding] = T(0);
      });
    });
  }

  void losses_and_gradient(Stream& stream, VocabularyShard shard, ConstTensorView targets, ConstTensorView weights,
                           ConstTensorView loss_gradient, double soft_cap, TensorView losses,
                           TensorView logits) override {
    dispatch_float(losses.dtype(), [&]<class T, class A>() {
      const std::int64_t n = losses.numel();
      std::vector<A> numbers(static_cast<std::size_t>(2 * n));
      const TensorView maximum(numbers.data(), {n}), sum_exp(numbers.data() + n, {n});
      // `losses` first holds the targets' logits.
      statistics(stream, logits, shard, targets, maximum, sum_exp, losses);
      this->losses(stream, maximum, sum_exp, losses, weights, losses);
      backward(stream, shard, maximum, sum_exp, targets, loss_gradient, soft_cap, logits);
    });
  }

 private:
  /// Calls `visit(x, begin, n)` for consecutive ranges of a row, x being elements [begin, begin + n) in A.
  template <class T, class Visit>
  static void for_column_blocks(const T* row, std::int64_t columns, Visit&& visit) {
    Accumulation<T> buffer[column_block];
    for (std::int64_t begin = 0; begin < columns; begin += column_block) {
      const std::int64_t n = columns - begin < column_block ? columns - begin : column_block;
      visit(row_in(row + begin, n, buffer), begin, n);
    }
  }

  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<CrossEntropyKernels> make_cross_entropy(ThreadPool& pool) {
  return std::make_unique<CpuCrossEntropy>(pool);
}

}  // namespace trireme::cpu
