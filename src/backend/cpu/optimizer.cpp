#include "src/backend/kernels/optimizer.hpp"

#include <cmath>

#include "src/backend/cpu/cpu_backend.hpp"
#include "src/backend/cpu/rows.hpp"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cpu {
namespace {

class CpuOptimizer final : public OptimizerKernels {
 public:
  explicit CpuOptimizer(ThreadPool& pool) : pool_(pool) {}

  void adamw(Stream&, const AdamWStep& step, ConstTensorView gradient, TensorView w, TensorView m, TensorView v,
             TensorView rounded) override {
    check_adamw(step, gradient, w, m, v, rounded);
    dispatch_float(rounded ? rounded.dtype() : w.dtype(), [&]<class T>() {
      using A = Accumulation<T>;
      const A* g_data = gradient.as<A>();
      A* w_data = w.as<A>();
      A* m_data = m.as<A>();
      A* v_data = v.as<A>();
      T* rounded_data = rounded ? rounded.as<T>() : nullptr;
      const double correction1 = 1 - std::pow(step.beta1, static_cast<double>(step.update));
      const double correction2 = 1 - std::pow(step.beta2, static_cast<double>(step.update));
      const A gradient_scale = static_cast<A>(step.gradient_scale);
      const A beta1 = static_cast<A>(step.beta1), rest1 = static_cast<A>(1 - step.beta1);
      const A beta2 = static_cast<A>(step.beta2), rest2 = static_cast<A>(1 - step.beta2);
      const A decay = static_cast<A>(1 - step.learning_rate * step.weight_decay);
      const A rate = static_cast<A>(step.learning_rate / correction1);
      const A inverse_correction2 = static_cast<A>(1 / correction2);
      const A epsilon = static_cast<A>(step.epsilon);
      pool_.parallel_ranges(w.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) {
          const A g = gradient_scale * g_data[i];
          const A mean = beta1 * m_data[i] + rest1 * g;
          const A square = beta2 * v_data[i] + rest2 * (g * g);
          m_data[i] = mean;
          v_data[i] = square;
          w_data[i] = decay * w_data[i] - rate * mean / (std::sqrt(square * inverse_correction2) + epsilon);
        }
        round(w_data, begin, end, rounded_data);
      });
    });
  }

  void sgd(Stream&, const SgdStep& step, ConstTensorView gradient, TensorView w, TensorView m,
           TensorView rounded) override {
    check_sgd(gradient, w, m, rounded);
    dispatch_float(rounded ? rounded.dtype() : w.dtype(), [&]<class T>() {
      using A = Accumulation<T>;
      const A* g_data = gradient.as<A>();
      A* w_data = w.as<A>();
      A* m_data = m.as<A>();
      T* rounded_data = rounded ? rounded.as<T>() : nullptr;
      const A gradient_scale = static_cast<A>(step.gradient_scale);
      const A momentum = static_cast<A>(step.momentum);
      const A decay = static_cast<A>(step.weight_decay);
      const A rate = static_cast<A>(step.learning_rate);
      pool_.parallel_ranges(w.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) {
          const A g = gradient_scale * g_data[i] + decay * w_data[i];
          m_data[i] = momentum * m_data[i] + g;
          w_data[i] -= rate * m_data[i];
        }
        round(w_data, begin, end, rounded_data);
      });
    });
  }

 private:
  static constexpr std::int64_t grain = 4096;

  /// Rounds elements [begin, end) of the masters, where there is a rounded copy.
  template <class A, class T>
  static void round(const A* masters, std::int64_t begin, std::int64_t end, T* rounded) {
    if (rounded == nullptr) return;
    if constexpr (std::is_same_v<T, A>)
      std::copy(masters + begin, masters + end, rounded + begin);
    else
      store_row(masters + begin, end - begin, rounded + begin);
  }

  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<OptimizerKernels> make_optimizer(ThreadPool& pool) { return std::make_unique<CpuOptimizer>(pool); }

}  // namespace trireme::cpu
