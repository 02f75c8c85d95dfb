#include "src/backend/kernels/optimizer.hpp"

#include <cmath>
#include <cstring>

#include "src/backend/cpu/cpu_backend.hpp"
#include "src/backend/cpu/rows.hpp"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cpu {
namespace {

class CpuOptimizer final : public OptimizerKernels {
 public:
  explicit CpuOptimizer(ThreadPool& pool) : pool_(pool) {}

  void clear(Stream&, const UpdateRanges& ranges, TensorView gradient) override {
    check_ranges("clear", ranges);
    const std::size_t size = size_of(gradient.dtype());
    for_each_range(ranges, gradient.numel(), [&](const Range& range) {
      std::byte* first = gradient.data() + static_cast<std::size_t>(range.begin) * size;
      pool_.parallel_ranges(range.count, grain, [&](std::int64_t begin, std::int64_t end) {
        std::memset(first + static_cast<std::size_t>(begin) * size, 0, static_cast<std::size_t>(end - begin) * size);
      });
    });
  }

  void decide(Stream&, const UpdateRule& rule, ConstTensorView losses, ConstTensorView of_groups, TensorView norm,
              TensorView factor) override {
    check_decide(losses, of_groups, norm, factor);
    const auto root = [](double x, int p) { return p == 2 ? std::sqrt(x) : std::pow(x, 1.0 / p); };
    const UpdateDecision decision = decision_of(rule, losses.numel(), losses.as<double>(), of_groups.numel(),
                                                of_groups.as<double>(), *factor.as<double>(), root);
    *norm.as<double>() = decision.norm;
    *factor.as<double>() = decision.factor;
  }

  void adamw(Stream&, const AdamWStep& step, const UpdateRanges& ranges, ConstTensorView gradient, TensorView w,
             TensorView m, TensorView v, TensorView rounded) override {
    check_adamw(step, ranges, gradient, w, m, v, rounded);
    if (std::isnan(scale_of(step))) return;
    dispatch_float(rounded ? rounded.dtype() : w.dtype(), [&]<class T>() {
      dispatch_moment<Accumulation<T>>(m.dtype(), [&]<class M>() {
        dispatch_moment<Accumulation<T>>(v.dtype(),
                                         [&]<class V>() { adamw<T, M, V>(step, ranges, gradient, w, m, v, rounded); });
      });
    });
  }

  void sgd(Stream&, const SgdStep& step, const UpdateRanges& ranges, ConstTensorView gradient, TensorView w,
           TensorView m, TensorView rounded) override {
    check_sgd(ranges, gradient, w, m, rounded);
    if (std::isnan(scale_of(step))) return;
    dispatch_float(rounded ? rounded.dtype() : w.dtype(), [&]<class T, class A>() {
      const A gradient_scale = static_cast<A>(scale_of(step));
      const A momentum = static_cast<A>(step.momentum);
      for_each_range(ranges, w.numel(), [&](const Range& range) {
        const A* g_data = gradient.as<A>() + range.begin;
        A* w_data = w.as<A>() + range.begin;
        A* m_data = m.as<A>() + range.moment;
        T* rounded_data = rounded ? rounded.as<T>() + range.begin : nullptr;
        const A decay = static_cast<A>(step.rates[range.rates].weight_decay);
        const A rate = static_cast<A>(step.rates[range.rates].learning_rate);
        pool_.parallel_ranges(range.count, grain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
          for (std::int64_t i = begin; i < end; ++i) {
            const A g = gradient_scale * g_data[i] + decay * w_data[i];
            m_data[i] = momentum * m_data[i] + g;
            w_data[i] -= rate * m_data[i];
          }
          round(w_data, begin, end, rounded_data);
        });
      });
    });
  }

  void blend(Stream&, double x_factor, ConstTensorView x, double y_factor, TensorView y, TensorView rounded) override {
    check_blend(x, y, rounded);
    dispatch_float(rounded ? rounded.dtype() : y.dtype(), [&]<class T, class A>() {
      dispatch_moment<A>(x.dtype(), [&]<class X>() {
        const A a = static_cast<A>(x_factor), b = static_cast<A>(y_factor);
        const X* x_data = x.as<X>();
        A* y_data = y.as<A>();
        T* rounded_data = rounded ? rounded.as<T>() : nullptr;
        pool_.parallel_ranges(y.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
          A buffer[tile];
          for (std::int64_t first = begin; first < end; first += tile) {
            const std::int64_t count = std::min(tile, end - first);
            const A* x_tile = row_in(x_data + first, count, buffer);
            A* y_tile = y_data + first;
#pragma omp simd
            for (std::int64_t i = 0; i < count; ++i) y_tile[i] = b * y_tile[i] + a * x_tile[i];
          }
          round(y_data, begin, end, rounded_data);
        });
      });
    });
  }

 private:
  static constexpr std::int64_t grain = 4096;
  /// Elements in 16 bits that a thread widens at a time.
  static constexpr std::int64_t tile = 1024;

  /// Factor of the gradient.
  static double scale_of(const auto& step) { return step.factor != nullptr ? *step.factor : step.gradient_scale; }

  /// A row of UpdateRanges.
  struct Range {
    std::int64_t begin, moment, count;
    std::size_t rates;
  };
  template <class Function>
  static void for_each_range(const UpdateRanges& ranges, std::int64_t all, const Function& function) {
    if (!ranges.table) return function(Range{0, 0, all, 0});
    const std::int64_t* row = ranges.table.as<std::int64_t>();
    const std::int64_t* last = row + ranges.table.numel();
    while (row != last) {
      const std::int64_t* next = row + UpdateRanges::columns;
      const std::int64_t end = next == last ? ranges.elements : next[UpdateRanges::first];
      function(Range{row[UpdateRanges::begin], row[UpdateRanges::moment], end - row[UpdateRanges::first],
                     static_cast<std::size_t>(row[UpdateRanges::rates])});
      row = next;
    }
  }

  template <class T, class M, class V>
  void adamw(const AdamWStep& step, const UpdateRanges& ranges, ConstTensorView gradient, TensorView w, TensorView m,
             TensorView v, TensorView rounded) {
    for_each_range(ranges, w.numel(), [&](const Range& range) {
      using A = Accumulation<T>;
      adamw(step, range, gradient.as<A>() + range.begin, w.as<A>() + range.begin, m.as<M>() + range.moment,
            v.as<V>() + range.moment, rounded ? rounded.as<T>() + range.begin : nullptr);
    });
  }

  template <class T, class A, class M, class V>
  void adamw(const AdamWStep& step, const Range& range, const A* g_data, A* w_data, M* m_data, V* v_data,
             T* rounded_data) {
    const UpdateRates& rates = step.rates[range.rates];
    const double correction1 = 1 - std::pow(step.beta1, static_cast<double>(step.update));
    const double correction2 = 1 - std::pow(step.beta2, static_cast<double>(step.update));
    const A gradient_scale = static_cast<A>(scale_of(step));
    const A beta1 = static_cast<A>(step.beta1), rest1 = static_cast<A>(1 - step.beta1);
    const A beta2 = static_cast<A>(step.beta2), rest2 = static_cast<A>(1 - step.beta2);
    const A decay = static_cast<A>(1 - rates.learning_rate * rates.weight_decay);
    const A rate = static_cast<A>(rates.learning_rate / correction1);
    const A inverse_correction2 = static_cast<A>(1 / correction2);
    const A epsilon = static_cast<A>(step.epsilon);
    pool_.parallel_ranges(range.count, grain, [&](std::int64_t begin, std::int64_t end) {
      A mean_buffer[tile], square_buffer[tile];
      for (std::int64_t first = begin; first < end; first += tile) {
        const std::int64_t count = std::min(tile, end - first);
        const A* g_tile = g_data + first;
        A* w_tile = w_data + first;
        const A *m_tile = row_in(m_data + first, count, mean_buffer),
                *v_tile = row_in(v_data + first, count, square_buffer);
        A *means = row_out(m_data + first, mean_buffer), *squares = row_out(v_data + first, square_buffer);
#pragma omp simd
        for (std::int64_t i = 0; i < count; ++i) {
          const A g = gradient_scale * g_tile[i];
          const A mean = beta1 * m_tile[i] + rest1 * g;
          const A square = beta2 * v_tile[i] + rest2 * (g * g);
          means[i] = mean;
          squares[i] = square;
          w_tile[i] = decay * w_tile[i] - rate * mean / (std::sqrt(square * inverse_correction2) + epsilon);
        }
        finish_row(means, count, m_data + first);
        finish_row(squares, count, v_data + first);
      }
      round(w_data, begin, end, rounded_data);
    });
  }

  /// Rounds elements [begin, end) of the master weights, if there is a rounded copy.
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
