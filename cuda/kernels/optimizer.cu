#include "src/backend/kernels/optimizer.hpp"

#include "cuda/kernels/dispatch.cuh"
#include "cuda/kernels/families.hpp"
#include "cuda/kernels/vec8.cuh"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cuda {
namespace {

/// The numbers of a step, in the type they are used in.
template <class A>
struct AdamW {
  A gradient_scale, beta1, rest1, beta2, rest2, decay, rate, inverse_correction2, epsilon;
  explicit AdamW(const AdamWStep& step)
      : gradient_scale(static_cast<A>(step.gradient_scale)),
        beta1(static_cast<A>(step.beta1)),
        rest1(static_cast<A>(1 - step.beta1)),
        beta2(static_cast<A>(step.beta2)),
        rest2(static_cast<A>(1 - step.beta2)),
        decay(static_cast<A>(1 - step.learning_rate * step.weight_decay)),
        rate(static_cast<A>(step.learning_rate / (1 - std::pow(step.beta1, static_cast<double>(step.update))))),
        inverse_correction2(static_cast<A>(1 / (1 - std::pow(step.beta2, static_cast<double>(step.update))))),
        epsilon(static_cast<A>(step.epsilon)) {}
};

/// rounded may be null. Memory traffic: 28 bytes per fp32 parameter, and 2 for its rounded copy; 4 less for each moment
/// in bf16.
template <class T, class M, class V>
__global__ void __launch_bounds__(block_threads)
    adamw_kernel(std::int64_t n, AdamW<Accumulation<T>> step, const Accumulation<T>* gradient, Accumulation<T>* w, M* m,
                 V* v, T* rounded) {
  using A = Accumulation<T>;
  const Vec8 range = vec8_at(global_thread(), n);
  A g[8], weight[8], mean[8], square[8];
  load(gradient + range.begin, range.size, g);
  load(w + range.begin, range.size, weight);
  load(m + range.begin, range.size, mean);
  load(v + range.begin, range.size, square);
  for (int c = 0; c < 8; ++c) {
    g[c] *= step.gradient_scale;
    mean[c] = step.beta1 * mean[c] + step.rest1 * g[c];
    square[c] = step.beta2 * square[c] + step.rest2 * (g[c] * g[c]);
    const A deviation = std::sqrt(square[c] * step.inverse_correction2) + step.epsilon;
    weight[c] = step.decay * weight[c] - step.rate * mean[c] / deviation;
  }
  store(weight, range.size, w + range.begin);
  store(mean, range.size, m + range.begin);
  store(square, range.size, v + range.begin);
  if (rounded != nullptr) store(weight, range.size, rounded + range.begin);
}

/// The numbers of a step, in the type they are used in.
template <class A>
struct Sgd {
  A gradient_scale, momentum, decay, rate;
  explicit Sgd(const SgdStep& step)
      : gradient_scale(static_cast<A>(step.gradient_scale)),
        momentum(static_cast<A>(step.momentum)),
        decay(static_cast<A>(step.weight_decay)),
        rate(static_cast<A>(step.learning_rate)) {}
};

/// rounded may be null. Memory traffic: 20 bytes per fp32 parameter, and 2 for its rounded copy.
template <class T>
__global__ void __launch_bounds__(block_threads)
    sgd_kernel(std::int64_t n, Sgd<Accumulation<T>> step, const Accumulation<T>* gradient, Accumulation<T>* w,
               Accumulation<T>* m, T* rounded) {
  using A = Accumulation<T>;
  const Vec8 range = vec8_at(global_thread(), n);
  A g[8], weight[8], momentum[8];
  load(gradient + range.begin, range.size, g);
  load(w + range.begin, range.size, weight);
  load(m + range.begin, range.size, momentum);
  for (int c = 0; c < 8; ++c) {
    g[c] = step.gradient_scale * g[c] + step.decay * weight[c];
    momentum[c] = step.momentum * momentum[c] + g[c];
    weight[c] -= step.rate * momentum[c];
  }
  store(weight, range.size, w + range.begin);
  store(momentum, range.size, m + range.begin);
  if (rounded != nullptr) store(weight, range.size, rounded + range.begin);
}

class CudaOptimizer final : public OptimizerKernels {
 public:
  void adamw(Stream& stream, const AdamWStep& step, ConstTensorView gradient, TensorView w, TensorView m, TensorView v,
             TensorView rounded) override {
    check_adamw(step, gradient, w, m, v, rounded);
    dispatch_gpu(rounded ? rounded.dtype() : w.dtype(), [&]<class T, class A>() {
      dispatch_moment<A>(m.dtype(), [&]<class M>() {
        dispatch_moment<A>(v.dtype(), [&]<class V>() {
          gpu::launch(stream, {"adamw", blocks_for(vec8s_of(w.numel())), block_threads}, adamw_kernel<T, M, V>,
                      w.numel(), AdamW<A>(step), gradient.as<A>(), w.as<A>(), m.as<M>(), v.as<V>(),
                      rounded ? rounded.as<T>() : nullptr);
        });
      });
    });
  }

  void sgd(Stream& stream, const SgdStep& step, ConstTensorView gradient, TensorView w, TensorView m,
           TensorView rounded) override {
    check_sgd(gradient, w, m, rounded);
    dispatch_gpu(rounded ? rounded.dtype() : w.dtype(), [&]<class T, class A>() {
      gpu::launch(stream, {"sgd", blocks_for(vec8s_of(w.numel())), block_threads}, sgd_kernel<T>, w.numel(),
                  Sgd<A>(step), gradient.as<A>(), w.as<A>(), m.as<A>(), rounded ? rounded.as<T>() : nullptr);
    });
  }
};

}  // namespace

std::unique_ptr<OptimizerKernels> make_optimizer() { return std::make_unique<CudaOptimizer>(); }

}  // namespace trireme::cuda
