#include "src/backend/kernels/cross_entropy.hpp"

#include <gpu/mma.cuh>
#include <limits>

#include "cuda/kernels/dispatch.cuh"
#include "cuda/kernels/families.hpp"
#include "cuda/kernels/sums.cuh"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cuda {
namespace {

// One block per row. Forward reads the logits once. Backward waits for all ranks' statistics, reads the logits again
// and overwrites them with their gradient. Each logit is thus accessed three times: 6 bytes in a 16-bit type. A rank
// with all classes does both at once, from shared memory: 4 bytes.

/// e^x; in fp32 within 2^-22 and the rounding of its argument. It dominates these kernels.
template <class A>
__device__ A exponential(A x) {
  if constexpr (std::is_same_v<A, float>) {
    return gpu::fast_exp2(x * 1.4426950408889634F);
  } else {
    return std::exp(x);
  }
}

/// Vec8s of a row that a thread has in flight together.
constexpr int vec8s_in_flight = 2;

/// The largest logit of a row, and the sum of their exponentials relative to it, for all threads of the block. Copies
/// the row to `kept`, unless that is null: each thread its own Vec8s.
template <int in_flight, class T>
__device__ void row_statistics(const T* row, std::int64_t classes, T* kept, Accumulation<T>& max_logit,
                               Accumulation<T>& sum) {
  using A = Accumulation<T>;
  constexpr A infinity = std::numeric_limits<A>::infinity();
  // A sum relative to `max_logit`; the row may start with logits of minus infinity.
  const auto shift = [](A logit) { return logit == -infinity ? A{0} : logit; };
  A own = -infinity, own_sum = 0, value[8];
  for (std::int64_t first = threadIdx.x; first < vec8s_of(classes); first += in_flight * block_threads) {
    Vec8 range[in_flight];
    PackedVec8<T> logit[in_flight];
#pragma unroll
    for (int i = 0; i < in_flight; ++i) {
      range[i] = vec8_at(first + i * block_threads, classes);
      logit[i].load(row + range[i].begin, range[i].size);
    }
#pragma unroll
    for (int i = 0; i < in_flight; ++i) {
      logit[i].unpack(value);
      if (kept != nullptr) store(value, range[i].size, kept + range[i].begin);
      if (range[i].size < 8) {
        for (int c = 0; c < 8; ++c) value[c] = c < range[i].size ? value[c] : -infinity;
      }
      A here = own;
      for (const A v : value) here = Maximum<A>{}(here, v);
      if (here > own) {
        own_sum *= exponential(own - here);
        own = here;
      }
      for (const A v : value) own_sum += exponential(v - shift(own));
    }
  }
  max_logit = block_combine<Maximum<A>>(own);
  // A thread without a finite logit has the sum 0, or NaN. Its factor would be infinite where all others are far below
  // 0.
  sum = block_combine<Plus<A>>(own == -infinity ? own_sum : own_sum * exponential(own - max_logit));
}

/// The gradient of a row of `logits`, which may be `row`.
template <bool capped, class T>
__device__ void row_gradient(const T* logits, std::int64_t columns, std::int64_t classes, std::int64_t target,
                             Accumulation<T> shift, Accumulation<T> sum_exp, Accumulation<T> gradient,
                             Accumulation<T> curvature, T* row) {
  using A = Accumulation<T>;
  const A factor = gradient / sum_exp;
  A value[8];
  for (std::int64_t first = threadIdx.x; first < vec8s_of(columns); first += vec8s_in_flight * block_threads) {
    Vec8 range[vec8s_in_flight];
    PackedVec8<T> logit[vec8s_in_flight];
#pragma unroll
    for (int i = 0; i < vec8s_in_flight; ++i) {
      range[i] = vec8_at(first + i * block_threads, columns);
      logit[i].load(logits + range[i].begin, vec8_at(first + i * block_threads, classes).size);
    }
#pragma unroll
    for (int i = 0; i < vec8s_in_flight; ++i) {
      const std::int64_t own_target = target - range[i].begin, own_classes = classes - range[i].begin;
      logit[i].unpack(value);
      const auto slope = [&](A v) { return capped ? 1 - v * v * curvature : A{1}; };
      for (A& v : value) v = exponential(v - shift) * factor * slope(v);
      if (own_target >= 0 && own_target < 8) {
        A after_cap[8];
        logit[i].unpack(after_cap);
        for (int c = 0; c < 8; ++c) value[c] -= c == own_target ? gradient * slope(after_cap[c]) : A{0};
      }
      if (own_classes < 8) {
        for (int c = 0; c < 8; ++c) value[c] = c < own_classes ? value[c] : A{0};
      }
      store(value, range[i].size, row + range[i].begin);
    }
  }
}

template <class A>
__device__ A loss_of(A weight, A sum_exp, A maximum, A target_logit) {
  return weight == 0 ? A{0} : weight * (std::log(sum_exp) + maximum - target_logit);
}

template <class T>
__global__ void __launch_bounds__(block_threads)
    statistics_kernel(std::int64_t columns, VocabularyShard shard, const T* logits, const std::int32_t* targets,
                      Accumulation<T>* maximum, Accumulation<T>* sum_exp, Accumulation<T>* target_logit) {
  using A = Accumulation<T>;
  const T* row = logits + blockIdx.x * columns;
  A max_logit, sum;
  row_statistics<vec8s_in_flight>(row, shard.classes, static_cast<T*>(nullptr), max_logit, sum);
  if (threadIdx.x != 0) return;
  maximum[blockIdx.x] = max_logit;
  sum_exp[blockIdx.x] = sum;
  const std::int64_t target = targets[blockIdx.x] - shard.first_class;
  target_logit[blockIdx.x] = target >= 0 && target < shard.classes ? gpu::widen(row[target]) : A{0};
}

template <class A>
__global__ void __launch_bounds__(block_threads)
    rescale_kernel(std::int64_t n, const A* own_maximum, const A* maximum, A* sum_exp) {
  const std::int64_t i = global_thread();
  if (i < n) sum_exp[i] *= std::exp(own_maximum[i] - maximum[i]);
}

template <class A>
__global__ void __launch_bounds__(block_threads) losses_kernel(std::int64_t n, const A* maximum, const A* sum_exp,
                                                               const A* target_logit, const A* weights, A* losses) {
  const std::int64_t i = global_thread();
  if (i >= n) return;
  losses[i] = loss_of(weights[i], sum_exp[i], maximum[i], target_logit[i]);
}

template <class T>
__global__ void __launch_bounds__(block_threads)
    rivals_kernel(std::int64_t columns, VocabularyShard shard, const T* logits, const std::int32_t* targets,
                  const Accumulation<T>* target_logit, Accumulation<T>* rivals) {
  using A = Accumulation<T>;
  const T* row = logits + blockIdx.x * columns;
  const A chosen = target_logit[blockIdx.x];
  const std::int64_t target = targets[blockIdx.x] - shard.first_class;
  A count = 0, value[8];
  for (std::int64_t i = threadIdx.x; i < vec8s_of(shard.classes); i += block_threads) {
    const Vec8 range = vec8_at(i, shard.classes);
    PackedVec8<T> logit;
    logit.load(row + range.begin, range.size);
    logit.unpack(value);
    for (int c = 0; c < 8; ++c) {
      const std::int64_t own = range.begin + c;
      const bool behind = value[c] < chosen || (value[c] == chosen && own > target);
      count += c < range.size && !behind && own != target ? A{1} : A{0};
    }
  }
  count = block_combine<Plus<A>>(count);
  if (threadIdx.x == 0) rivals[blockIdx.x] = count;
}

/// `curvature` is 1 / soft_cap^2, if the logits are `capped`.
template <class T, bool capped>
__global__ void __launch_bounds__(block_threads)
    backward_kernel(std::int64_t columns, VocabularyShard shard, const Accumulation<T>* maximum,
                    const Accumulation<T>* sum_exp, const std::int32_t* targets, const Accumulation<T>* loss_gradient,
                    Accumulation<T> curvature, T* logits) {
  const std::int64_t target = targets[blockIdx.x] - shard.first_class;
  T* row = logits + blockIdx.x * columns;
  row_gradient<capped>(row, columns, shard.classes, target, maximum[blockIdx.x], sum_exp[blockIdx.x],
                       loss_gradient[blockIdx.x], curvature, row);
}

/// Losses and gradients of rows with all classes. Dynamic shared memory: a row, if `held`; otherwise it is read again.
template <class T, bool capped, bool held>
__global__ void __launch_bounds__(block_threads)
    losses_and_gradient_kernel(std::int64_t columns, VocabularyShard shard, const std::int32_t* targets,
                               const Accumulation<T>* weights, const Accumulation<T>* loss_gradient,
                               Accumulation<T> curvature, Accumulation<T>* losses, T* logits) {
  using A = Accumulation<T>;
  // Half as many blocks at once as without the row have twice as much in flight.
  constexpr int in_flight = 2 * vec8s_in_flight;
  T* row = logits + blockIdx.x * columns;
  T* kept = held ? gpu::dynamic_shared<T>() : nullptr;
  const std::int64_t target = targets[blockIdx.x] - shard.first_class;
  const bool has_target = target >= 0 && target < shard.classes;
  const A target_logit = has_target && threadIdx.x == 0 ? gpu::widen(row[target]) : A{0};
  A max_logit, sum;
  row_statistics<in_flight>(row, shard.classes, kept, max_logit, sum);  // waits for the target's logit
  if (threadIdx.x == 0) losses[blockIdx.x] = loss_of(weights[blockIdx.x], sum, max_logit, target_logit);
  row_gradient<capped>(held ? kept : row, columns, shard.classes, target, max_logit, sum, loss_gradient[blockIdx.x],
                       curvature, row);
}

class CudaCrossEntropy final : public CrossEntropyKernels {
 public:
  /// A multiprocessor has the shared memory of two rows, to load one while it computes the other.
  explicit CudaCrossEntropy(std::size_t max_shared_bytes) : max_row_bytes_(max_shared_bytes / 2 - 1024) {}

  void statistics(Stream& stream, ConstTensorView logits, VocabularyShard shard, ConstTensorView targets,
                  TensorView maximum, TensorView sum_exp, TensorView target_logit) override {
    check_cross_entropy("cross entropy's statistics", logits, shard, {maximum, sum_exp, target_logit});
    check_targets("cross entropy's statistics", logits, targets);
    dispatch_gpu(logits.dtype(), [&]<class T, class A>() {
      gpu::launch(stream, {"cross_entropy_statistics", rows_of(logits.shape()), block_threads}, statistics_kernel<T>,
                  logits.shape().back(), shard, logits.as<T>(), targets.as<std::int32_t>(), maximum.as<A>(),
                  sum_exp.as<A>(), target_logit.as<A>());
    });
  }

  void rescale(Stream& stream, ConstTensorView own_maximum, ConstTensorView maximum, TensorView sum_exp) override {
    check_rescale(own_maximum, maximum, sum_exp);
    dispatch_gpu(accumulation_type(sum_exp.dtype()), [&]<class T, class A>() {
      gpu::launch(stream, {"rescale", blocks_for(sum_exp.numel()), block_threads}, rescale_kernel<A>, sum_exp.numel(),
                  own_maximum.as<A>(), maximum.as<A>(), sum_exp.as<A>());
    });
  }

  void losses(Stream& stream, ConstTensorView maximum, ConstTensorView sum_exp, ConstTensorView target_logit,
              ConstTensorView weights, TensorView losses) override {
    dispatch_gpu(accumulation_type(losses.dtype()), [&]<class T, class A>() {
      gpu::launch(stream, {"losses", blocks_for(losses.numel()), block_threads}, losses_kernel<A>, losses.numel(),
                  maximum.as<A>(), sum_exp.as<A>(), target_logit.as<A>(), weights.as<A>(), losses.as<A>());
    });
  }

  void rivals(Stream& stream, ConstTensorView logits, VocabularyShard shard, ConstTensorView targets,
              ConstTensorView target_logit, TensorView rivals) override {
    check_cross_entropy("cross entropy's rivals", logits, shard, {target_logit, rivals});
    check_targets("cross entropy's rivals", logits, targets);
    dispatch_gpu(logits.dtype(), [&]<class T, class A>() {
      gpu::launch(stream, {"cross_entropy_rivals", rows_of(logits.shape()), block_threads}, rivals_kernel<T>,
                  logits.shape().back(), shard, logits.as<T>(), targets.as<std::int32_t>(), target_logit.as<A>(),
                  rivals.as<A>());
    });
  }

  void backward(Stream& stream, VocabularyShard shard, ConstTensorView maximum, ConstTensorView sum_exp,
                ConstTensorView targets, ConstTensorView loss_gradient, double soft_cap, TensorView logits) override {
    check_cross_entropy("cross entropy's backward", logits, shard, {maximum, sum_exp, loss_gradient});
    check_targets("cross entropy's backward", logits, targets);
    dispatch_gpu(logits.dtype(), [&]<class T, class A>() {
      const bool capped = soft_cap > 0;
      const A curvature = capped ? static_cast<A>(1 / (soft_cap * soft_cap)) : A{0};
      gpu::launch(stream, {"cross_entropy_backward", rows_of(logits.shape()), block_threads},
                  capped ? backward_kernel<T, true> : backward_kernel<T, false>, logits.shape().back(), shard,
                  maximum.as<A>(), sum_exp.as<A>(), targets.as<std::int32_t>(), loss_gradient.as<A>(), curvature,
                  logits.as<T>());
    });
  }

  void losses_and_gradient(Stream& stream, VocabularyShard shard, ConstTensorView targets, ConstTensorView weights,
                           ConstTensorView loss_gradient, double soft_cap, TensorView losses,
                           TensorView logits) override {
    check_cross_entropy("losses_and_gradient", logits, shard, {weights, loss_gradient, losses});
    check_targets("losses_and_gradient", logits, targets);
    dispatch_gpu(logits.dtype(), [&]<class T, class A>() {
      const bool capped = soft_cap > 0;
      const A curvature = capped ? static_cast<A>(1 / (soft_cap * soft_cap)) : A{0};
      const std::int64_t columns = logits.shape().back();
      const std::size_t row_bytes = static_cast<std::size_t>(8 * vec8s_of(columns)) * sizeof(T);
      const auto launch = [&](std::size_t shared_bytes, auto kernel) {
        gpu::launch(stream, {"losses_and_gradient", rows_of(logits.shape()), block_threads, shared_bytes}, kernel,
                    columns, shard, targets.as<std::int32_t>(), weights.as<A>(), loss_gradient.as<A>(), curvature,
                    losses.as<A>(), logits.as<T>());
      };
      if (row_bytes <= max_row_bytes_) {
        launch(row_bytes,
               capped ? losses_and_gradient_kernel<T, true, true> : losses_and_gradient_kernel<T, false, true>);
      } else {
        launch(0, capped ? losses_and_gradient_kernel<T, true, false> : losses_and_gradient_kernel<T, false, false>);
      }
    });
  }

 private:
  std::size_t max_row_bytes_;
};

}  // namespace

std::unique_ptr<CrossEntropyKernels> make_cross_entropy(std::size_t max_shared_bytes) {
  return std::make_unique<CudaCrossEntropy>(max_shared_bytes);
}

}  // namespace trireme::cuda
