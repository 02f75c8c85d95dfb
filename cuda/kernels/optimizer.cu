#include "src/backend/kernels/optimizer.hpp"

#include "cuda/kernels/dispatch.cuh"
#include "cuda/kernels/families.hpp"
#include "cuda/kernels/sums.cuh"
#include "cuda/kernels/vec8.cuh"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cuda {
namespace {

constexpr int rate_count = std::tuple_size_v<UpdateRateTable>;

/// One number of each of the step's rates. The position is compared, not an index: parameters of a kernel have none.
template <class A>
struct OfRates {
  A values[rate_count];
  template <class Function>
  OfRates(const UpdateRateTable& rates, const Function& function) {
    for (int i = 0; i < rate_count; ++i) values[i] = static_cast<A>(function(rates[i]));
  }
  __device__ A at(int position) const {
    A value = values[0];
    for (int i = 1; i < rate_count; ++i) value = i == position ? values[i] : value;
    return value;
  }
};

/// UpdateRanges, as a kernel reads them.
struct Ranges {
  const std::int64_t* table;
  std::int64_t count;
  std::int64_t elements;
  Ranges(const UpdateRanges& ranges, ConstTensorView w)
      : table(ranges.table ? ranges.table.as<std::int64_t>() : nullptr),
        count(ranges.table ? ranges.table.shape()[0] : 1),
        elements(ranges.table ? ranges.elements : w.numel()) {}
  gpu::Launch launch(const char* name) const { return {name, blocks_for(vec8s_of(elements)), block_threads}; }
};

/// Eight elements of a range.
struct UpdatedVec8 {
  std::int64_t begin, moment;
  int size, rates;
};
/// Finds the range of eight elements by bisection. All of a warp, but for few, read the same rows, from the L1 cache.
__device__ inline UpdatedVec8 updated_vec8_at(std::int64_t vec8, const Ranges& ranges) {
  const Vec8 range = vec8_at(vec8, ranges.elements);
  if (ranges.table == nullptr) return {range.begin, range.begin, range.size, 0};
  const std::int64_t* row = ranges.table;
  for (std::int64_t rows = ranges.count; rows > 1;) {
    const std::int64_t half = rows / 2;
    const std::int64_t* middle = row + half * UpdateRanges::columns;
    const bool after = middle[UpdateRanges::first] <= range.begin;
    row = after ? middle : row;
    rows = after ? rows - half : half;
  }
  const std::int64_t offset = range.begin - row[UpdateRanges::first];
  return {row[UpdateRanges::begin] + offset, row[UpdateRanges::moment] + offset, range.size,
          static_cast<int>(row[UpdateRanges::rates])};
}

/// One warp, of which one thread works.
__global__ void __launch_bounds__(warp_threads)
    decide_kernel(UpdateRule rule, std::int64_t losses, const double* loss, std::int64_t groups, const double* of_group,
                  double* norm, double* factor) {
  if (threadIdx.x != 0) return;
  const auto root = [](double x, int p) { return p == 2 ? std::sqrt(x) : std::pow(x, 1.0 / p); };
  const UpdateDecision decision = decision_of(rule, losses, loss, groups, of_group, *factor, root);
  *norm = decision.norm;
  *factor = decision.factor;
}

/// The factor of a step in device memory, if any, which replaces its number. The step is not made if it is NaN.
template <class A>
__device__ inline A scale_of(A number, const double* factor) {
  return factor == nullptr ? number : static_cast<A>(*factor);
}

template <class T>
__global__ void __launch_bounds__(block_threads) clear_kernel(Ranges ranges, T* gradient) {
  const UpdatedVec8 range = updated_vec8_at(global_thread(), ranges);
  const Accumulation<T> zero[8] = {};
  store(zero, range.size, gradient + range.begin);
}

/// The numbers of a step, in the type they are used in.
template <class A>
struct AdamW {
  A gradient_scale, beta1, rest1, beta2, rest2, inverse_correction2, epsilon;
  OfRates<A> decay, rate;
  explicit AdamW(const AdamWStep& step)
      : gradient_scale(static_cast<A>(step.gradient_scale)),
        beta1(static_cast<A>(step.beta1)),
        rest1(static_cast<A>(1 - step.beta1)),
        beta2(static_cast<A>(step.beta2)),
        rest2(static_cast<A>(1 - step.beta2)),
        inverse_correction2(static_cast<A>(1 / (1 - std::pow(step.beta2, static_cast<double>(step.update))))),
        epsilon(static_cast<A>(step.epsilon)),
        decay(step.rates, [](const UpdateRates& r) { return 1 - r.learning_rate * r.weight_decay; }),
        rate(step.rates, [&](const UpdateRates& r) {
          return r.learning_rate / (1 - std::pow(step.beta1, static_cast<double>(step.update)));
        }) {}
};

/// rounded may be null. Memory traffic: 28 bytes per fp32 parameter, and 2 for its rounded copy; 4 less for each moment
/// in bf16.
template <class T, class M, class V>
__global__ void __launch_bounds__(block_threads)
    adamw_kernel(Ranges ranges, AdamW<Accumulation<T>> step, const double* factor, const Accumulation<T>* gradient,
                 Accumulation<T>* w, M* m, V* v, T* rounded) {
  using A = Accumulation<T>;
  const A scale = scale_of(step.gradient_scale, factor);
  if (scale != scale) return;
  const UpdatedVec8 range = updated_vec8_at(global_thread(), ranges);
  const A decay = step.decay.at(range.rates), rate = step.rate.at(range.rates);
  A g[8], weight[8], mean[8], square[8];
  load(gradient + range.begin, range.size, g);
  load(w + range.begin, range.size, weight);
  load(m + range.moment, range.size, mean);
  load(v + range.moment, range.size, square);
  for (int c = 0; c < 8; ++c) {
    g[c] *= scale;
    mean[c] = step.beta1 * mean[c] + step.rest1 * g[c];
    square[c] = step.beta2 * square[c] + step.rest2 * (g[c] * g[c]);
    const A deviation = std::sqrt(square[c] * step.inverse_correction2) + step.epsilon;
    weight[c] = decay * weight[c] - rate * mean[c] / deviation;
  }
  store(weight, range.size, w + range.begin);
  store(mean, range.size, m + range.moment);
  store(square, range.size, v + range.moment);
  if (rounded != nullptr) store(weight, range.size, rounded + range.begin);
}

/// The numbers of a step, in the type they are used in.
template <class A>
struct Sgd {
  A gradient_scale, momentum;
  OfRates<A> decay, rate;
  explicit Sgd(const SgdStep& step)
      : gradient_scale(static_cast<A>(step.gradient_scale)),
        momentum(static_cast<A>(step.momentum)),
        decay(step.rates, [](const UpdateRates& r) { return r.weight_decay; }),
        rate(step.rates, [](const UpdateRates& r) { return r.learning_rate; }) {}
};

/// rounded may be null. Memory traffic: 20 bytes per fp32 parameter, and 2 for its rounded copy.
template <class T>
__global__ void __launch_bounds__(block_threads)
    sgd_kernel(Ranges ranges, Sgd<Accumulation<T>> step, const double* factor, const Accumulation<T>* gradient,
               Accumulation<T>* w, Accumulation<T>* m, T* rounded) {
  using A = Accumulation<T>;
  const A scale = scale_of(step.gradient_scale, factor);
  if (scale != scale) return;
  const UpdatedVec8 range = updated_vec8_at(global_thread(), ranges);
  const A decay = step.decay.at(range.rates), rate = step.rate.at(range.rates);
  A g[8], weight[8], momentum[8];
  load(gradient + range.begin, range.size, g);
  load(w + range.begin, range.size, weight);
  load(m + range.moment, range.size, momentum);
  for (int c = 0; c < 8; ++c) {
    g[c] = scale * g[c] + decay * weight[c];
    momentum[c] = step.momentum * momentum[c] + g[c];
    weight[c] -= rate * momentum[c];
  }
  store(weight, range.size, w + range.begin);
  store(momentum, range.size, m + range.moment);
  if (rounded != nullptr) store(weight, range.size, rounded + range.begin);
}

/// y = b y + a x; rounded may be null.
template <class T, class X>
__global__ void __launch_bounds__(block_threads)
    blend_kernel(std::int64_t n, Accumulation<T> a, const X* x, Accumulation<T> b, Accumulation<T>* y, T* rounded) {
  using A = Accumulation<T>;
  const Vec8 range = vec8_at(global_thread(), n);
  A added[8], value[8];
  load(x + range.begin, range.size, added);
  load(y + range.begin, range.size, value);
  for (int c = 0; c < 8; ++c) value[c] = b * value[c] + a * added[c];
  store(value, range.size, y + range.begin);
  if (rounded != nullptr) store(value, range.size, rounded + range.begin);
}

class CudaOptimizer final : public OptimizerKernels {
 public:
  void clear(Stream& stream, const UpdateRanges& cleared, TensorView gradient) override {
    check_ranges("clear", cleared);
    const Ranges ranges(cleared, gradient);
    dispatch_gpu(gradient.dtype(), [&]<class T>() {
      gpu::launch(stream, ranges.launch("clear"), clear_kernel<T>, ranges, gradient.as<T>());
    });
  }

  void decide(Stream& stream, const UpdateRule& rule, ConstTensorView losses, ConstTensorView of_groups,
              TensorView norm, TensorView factor) override {
    check_decide(losses, of_groups, norm, factor);
    gpu::launch(stream, {"decide", 1, warp_threads}, decide_kernel, rule, losses.numel(), losses.as<double>(),
                of_groups.numel(), of_groups.as<double>(), norm.as<double>(), factor.as<double>());
  }

  void adamw(Stream& stream, const AdamWStep& step, const UpdateRanges& updated, ConstTensorView gradient, TensorView w,
             TensorView m, TensorView v, TensorView rounded) override {
    check_adamw(step, updated, gradient, w, m, v, rounded);
    const Ranges ranges(updated, w);
    dispatch_gpu(rounded ? rounded.dtype() : w.dtype(), [&]<class T, class A>() {
      dispatch_moment<A>(m.dtype(), [&]<class M>() {
        dispatch_moment<A>(v.dtype(), [&]<class V>() {
          gpu::launch(stream, ranges.launch("adamw"), adamw_kernel<T, M, V>, ranges, AdamW<A>(step), step.factor,
                      gradient.as<A>(), w.as<A>(), m.as<M>(), v.as<V>(), rounded ? rounded.as<T>() : nullptr);
        });
      });
    });
  }

  void sgd(Stream& stream, const SgdStep& step, const UpdateRanges& updated, ConstTensorView gradient, TensorView w,
           TensorView m, TensorView rounded) override {
    check_sgd(updated, gradient, w, m, rounded);
    const Ranges ranges(updated, w);
    dispatch_gpu(rounded ? rounded.dtype() : w.dtype(), [&]<class T, class A>() {
      gpu::launch(stream, ranges.launch("sgd"), sgd_kernel<T>, ranges, Sgd<A>(step), step.factor, gradient.as<A>(),
                  w.as<A>(), m.as<A>(), rounded ? rounded.as<T>() : nullptr);
    });
  }

  void blend(Stream& stream, double x_factor, ConstTensorView x, double y_factor, TensorView y,
             TensorView rounded) override {
    check_blend(x, y, rounded);
    dispatch_gpu(rounded ? rounded.dtype() : y.dtype(), [&]<class T, class A>() {
      dispatch_moment<A>(x.dtype(), [&]<class X>() {
        gpu::launch(stream, {"blend", blocks_for(vec8s_of(y.numel())), block_threads}, blend_kernel<T, X>, y.numel(),
                    static_cast<A>(x_factor), x.as<X>(), static_cast<A>(y_factor), y.as<A>(),
                    rounded ? rounded.as<T>() : nullptr);
      });
    });
  }
};

}  // namespace

std::unique_ptr<OptimizerKernels> make_optimizer() { return std::make_unique<CudaOptimizer>(); }

}  // namespace trireme::cuda
