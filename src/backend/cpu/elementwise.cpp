#include "src/backend/kernels/elementwise.hpp"

#include <algorithm>
#include <cmath>

#include "src/backend/cpu/activation.hpp"
#include "src/backend/cpu/column_sums.hpp"
#include "src/backend/cpu/cpu_backend.hpp"
#include "src/backend/cpu/dropout_mask.hpp"
#include "src/backend/cpu/rows.hpp"
#include "src/backend/cpu/scratch.hpp"
#include "src/backend/kernels/shape_checks.hpp"
#include "src/base/vector_math.hpp"

namespace trireme::cpu {
namespace {

/// Elements per task, and elements converted at a time within it.
constexpr std::int64_t grain = 16384;
constexpr std::int64_t chunk = 1024;

/// value rounded once. The intermediate fp32 has a sticky last bit, which makes the second rounding exact.
template <class T>
T round_to(double value) {
  if constexpr (std::is_same_v<T, bf16>) {
    float nearest = static_cast<float>(value);
    if (static_cast<double>(nearest) != value && value == value) {
      std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
      if (std::abs(static_cast<double>(nearest)) > std::abs(value)) --bits;
      nearest = std::bit_cast<float>(bits | 1u);
    }
    return bf16(nearest);
  } else if constexpr (std::is_same_v<T, fp16>) {
    fp16 rounded;
    rounded.bits = std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
    return rounded;
  } else {
    return static_cast<T>(value);
  }
}

/// y = activation(gate) up for one row of f columns.
template <Activation activation, class A>
void glu_row(const A* gate, const A* up, std::int64_t f, A* y) {
#pragma omp simd
  for (std::int64_t j = 0; j < f; ++j) y[j] = activate<activation>(gate[j]) * up[j];
}

/// For one row; dgate and dup may be gate and up.
template <Activation activation, class A>
void glu_row_backward(const A* dy, const A* gate, const A* up, std::int64_t f, A* dgate, A* dup) {
#pragma omp simd
  for (std::int64_t j = 0; j < f; ++j) {
    const A x = gate[j];
    const A gradient = dy[j];
    if constexpr (activation == Activation::silu) {
      const A sigmoid = 1 / (1 + vector_exp(-x));
      dgate[j] = gradient * up[j] * sigmoid * (1 + x * (1 - sigmoid));
      dup[j] = gradient * x * sigmoid;
    } else {
      dgate[j] = gradient * up[j] * activation_derivative<activation>(x);
      dup[j] = gradient * activate<activation>(x);
    }
  }
}

/// Calls `function.template operator()<activation>()` for an activation of gates.
template <class Function>
void dispatch_gate(Activation activation, Function&& function) {
  if (activation == Activation::silu) return function.template operator()<Activation::silu>();
  function.template operator()<Activation::gelu_tanh>();
}

class CpuElementwise final : public ElementwiseKernels {
 public:
  explicit CpuElementwise(ThreadPool& pool) : pool_(pool) {}

  void fill(Stream&, double value, TensorView y) override {
    dispatch_float(y.dtype(), [&]<class T>() {
      T* out = y.as<T>();
      const T rounded = round_to<T>(value);
      pool_.parallel_ranges(y.numel(), grain,
                            [&](std::int64_t begin, std::int64_t end) { std::fill(out + begin, out + end, rounded); });
    });
  }

  void convert(Stream&, ConstTensorView x, TensorView y) override {
    check_same_size("convert", x, y);
    dispatch_float(x.dtype(), [&]<class From>() {
      dispatch_float(y.dtype(), [&]<class To>() {
        const From* in = x.as<From>();
        To* out = y.as<To>();
        pool_.parallel_ranges(x.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
          const std::int64_t n = end - begin;
          if constexpr (std::is_same_v<From, To>) {
            std::copy_n(in + begin, n, out + begin);
          } else if constexpr (std::is_same_v<To, float>) {
            if constexpr (std::is_same_v<From, double>)
              for (std::int64_t i = begin; i < end; ++i) out[i] = static_cast<float>(in[i]);
            else
              load_row(in + begin, n, out + begin);
          } else if constexpr (std::is_same_v<From, float> && !std::is_same_v<To, double>) {
            store_row(in + begin, n, out + begin);
          } else if constexpr (std::is_same_v<From, double>) {
            for (std::int64_t i = begin; i < end; ++i) out[i] = round_to<To>(in[i]);
          } else if constexpr (std::is_same_v<To, double>) {
            for (std::int64_t i = begin; i < end; ++i) out[i] = static_cast<float>(in[i]);
          } else {
            float buffer[chunk];
            for (std::int64_t i = begin; i < end; i += chunk) {
              const std::int64_t count = std::min(chunk, end - i);
              load_row(in + i, count, buffer);
              store_row(buffer, count, out + i);
            }
          }
        });
      });
    });
  }

  void add(Stream&, ConstTensorView x, TensorView y) override {
    check_alike("add", x, y);
    dispatch_float(y.dtype(), [&]<class T, class A>() {
      combine(x.as<T>(), y.as<T>(), y, [](A x_element, A y_element) { return y_element + x_element; });
    });
  }

  void multiply(Stream&, ConstTensorView x, TensorView y) override {
    check_alike("multiply", x, y);
    dispatch_float(y.dtype(), [&]<class T, class A>() {
      combine(x.as<T>(), y.as<T>(), y, [](A x_element, A y_element) { return y_element * x_element; });
    });
  }

  void scale(Stream&, double factor, TensorView y) override {
    dispatch_float(y.dtype(), [&]<class T, class A>() {
      const A a = static_cast<A>(factor);
      combine(y.as<T>(), y.as<T>(), y, [a](A, A y_element) { return y_element * a; });
    });
  }

  void soft_cap(Stream&, double cap, TensorView y) override {
    check_soft_cap(cap);
    dispatch_float(y.dtype(), [&]<class T, class A>() {
      const A c = static_cast<A>(cap), reciprocal = static_cast<A>(1 / cap);
      combine(y.as<T>(), y.as<T>(), y, [=](A, A y_element) { return c * vector_tanh(y_element * reciprocal); });
    });
  }

  void divide_by_norms(Stream&, ConstTensorView squares, double least, ConstTensorView x, TensorView y) override {
    check_divide_by_norms(squares, x, y);
    dispatch_float(y.dtype(), [&]<class T, class A>() {
      const std::int64_t part = y.numel() / squares.numel();
      for (std::int64_t i = 0; i < squares.numel(); ++i) {
        const A factor = static_cast<A>(1 / std::max(std::sqrt(squares.as<double>()[i]), least));
        const T* from = x.as<T>() + i * part;
        combine(from, from, y.flat(i * part, part), [factor](A, A element) { return element * factor; });
      }
    });
  }

  void bias_dropout_add(Stream&, ConstTensorView x, ConstTensorView bias, ConstTensorView residual,
                        const Dropout& dropout, TensorView sum) override {
    check_bias_dropout_add(x, bias, residual, dropout, sum);
    dispatch_float(x.dtype(), [&]<class T, class A>() {
      const std::int64_t h = x.shape().back(), rows = rows_of(x.shape());
      if (h == 0) return;
      ScratchPool::Lease bias_lease(scratch_, static_cast<std::size_t>(h) * sizeof(A));
      const A* added = bias ? row_in(bias.as<T>(), h, bias_lease.take<A>(h)) : nullptr;
      const T* in = x.as<T>();
      const T* skip = residual.as<T>();
      T* out = sum.as<T>();
      pool_.parallel_ranges(rows, row_grain(h), [&](std::int64_t begin, std::int64_t end) {
        RowBuffers<A> buffer(scratch_, h);
        for (std::int64_t i = begin; i < end; ++i) {
          const A* x_row = row_in(in + i * h, h, buffer.x);
          const A* skip_row = row_in(skip + i * h, h, buffer.y);
          A* row = row_out(out + i * h, buffer.out);
          if (dropout.enabled()) {
            const std::int64_t batch = x.shape()[1];
            dropout_row(dropout, dropout.key, dropout.samples[i % batch], dropout.positions[i / batch], h,
                        buffer.factor);
            if (added != nullptr) {
#pragma omp simd
              for (std::int64_t j = 0; j < h; ++j) row[j] = skip_row[j] + (x_row[j] + added[j]) * buffer.factor[j];
            } else {
#pragma omp simd
              for (std::int64_t j = 0; j < h; ++j) row[j] = skip_row[j] + x_row[j] * buffer.factor[j];
            }
          } else if (added != nullptr) {
#pragma omp simd
            for (std::int64_t j = 0; j < h; ++j) row[j] = skip_row[j] + (x_row[j] + added[j]);
          } else {
#pragma omp simd
            for (std::int64_t j = 0; j < h; ++j) row[j] = skip_row[j] + x_row[j];
          }
          finish_row(row, h, out + i * h);
        }
      });
    });
  }

  void bias_dropout_add_backward(Stream&, ConstTensorView dsum, const Dropout& dropout, TensorView dx,
                                 TensorView dbias) override {
    check_bias_dropout_add_backward(dsum, dropout, dx, dbias);
    dispatch_float(dsum.dtype(), [&]<class T, class A>() {
      const std::int64_t h = dsum.shape().back(), rows = rows_of(dsum.shape());
      if (h == 0) return;
      const T* in = dsum.as<T>();
      T* out = dx.as<T>();
      const auto rows_backward = [&](std::int64_t begin, std::int64_t end, A* partial) {
        if (!dropout.enabled() && in != out) std::copy_n(in + begin * h, (end - begin) * h, out + begin * h);
        if (!dropout.enabled() && partial == nullptr) return;
        RowBuffers<A> buffer(scratch_, h);
        for (std::int64_t i = begin; i < end; ++i) {
          const A* row = row_in(in + i * h, h, buffer.x);
          if (dropout.enabled()) {
            const std::int64_t batch = dsum.shape()[1];
            A* dx_row = row_out(out + i * h, buffer.out);
            dropout_row(dropout, dropout.key, dropout.samples[i % batch], dropout.positions[i / batch], h,
                        buffer.factor);
#pragma omp simd
            for (std::int64_t j = 0; j < h; ++j) dx_row[j] = row[j] * buffer.factor[j];
            finish_row(dx_row, h, out + i * h);
            row = dx_row;
          }
          if (partial != nullptr) {
#pragma omp simd
            for (std::int64_t j = 0; j < h; ++j) partial[j] += row[j];
          }
        }
      };
      if (dbias) {
        sum_columns(pool_, scratch_, rows, h, dbias.as<A>(), rows_backward);
      } else if (dropout.enabled() || in != out) {
        pool_.parallel_ranges(rows, row_grain(h),
                              [&](std::int64_t begin, std::int64_t end) { rows_backward(begin, end, nullptr); });
      }
    });
  }

  void activate(Stream&, Activation activation, ConstTensorView x, TensorView y) override {
    check_activate(x, y);
    dispatch_float(y.dtype(), [&]<class T, class A>() {
      dispatch_activation(activation, [&]<Activation kind>() {
        combine(x.as<T>(), x.as<T>(), y, [](A x_element, A) { return cpu::activate<kind>(x_element); });
      });
    });
  }

  void activate_backward(Stream&, Activation activation, ConstTensorView dy, ConstTensorView x,
                         TensorView dx) override {
    check_activate_backward(dy, x, dx);
    dispatch_float(dx.dtype(), [&]<class T, class A>() {
      dispatch_activation(activation, [&]<Activation kind>() {
        combine(dy.as<T>(), x.as<T>(), dx,
                [](A gradient, A x_element) { return gradient * cpu::activation_derivative<kind>(x_element); });
      });
    });
  }

  void glu(Stream&, Activation activation, ConstTensorView gate_up, TensorView y) override {
    check_glu("glu", activation, y, {gate_up});
    dispatch_float(y.dtype(), [&]<class T, class A>() {
      const std::int64_t f = y.shape().back();
      if (f == 0) return;
      const T* in = gate_up.as<T>();
      T* out = y.as<T>();
      pool_.parallel_ranges(rows_of(y.shape()), row_grain(f), [&](std::int64_t begin, std::int64_t end) {
        RowBuffers<A> buffer(scratch_, f);
        for (std::int64_t i = begin; i < end; ++i) {
          const A* gate = row_in(in + 2 * i * f, f, buffer.x);
          const A* up = row_in(in + (2 * i + 1) * f, f, buffer.y);
          A* row = row_out(out + i * f, buffer.out);
          dispatch_gate(activation, [&]<Activation chosen>() { glu_row<chosen>(gate, up, f, row); });
          finish_row(row, f, out + i * f);
        }
      });
    });
  }

  void glu_backward(Stream&, Activation activation, ConstTensorView dy, ConstTensorView gate_up,
                    TensorView dgate_up) override {
    check_glu("glu_backward", activation, dy, {gate_up, dgate_up});
    dispatch_float(dy.dtype(), [&]<class T, class A>() {
      const std::int64_t f = dy.shape().back();
      if (f == 0) return;
      const T* gradient = dy.as<T>();
      const T* in = gate_up.as<T>();
      T* out = dgate_up.as<T>();
      pool_.parallel_ranges(rows_of(dy.shape()), row_grain(f), [&](std::int64_t begin, std::int64_t end) {
        RowBuffers<A> buffer(scratch_, f);
        for (std::int64_t i = begin; i < end; ++i) {
          T* to_gate = out + 2 * i * f;
          T* to_up = to_gate + f;
          const A* dy_row = row_in(gradient + i * f, f, buffer.out);
          const A* gate = row_in(in + 2 * i * f, f, buffer.x);
          const A* up = row_in(in + (2 * i + 1) * f, f, buffer.y);
          A* dgate = row_out(to_gate, buffer.x);
          A* dup = row_out(to_up, buffer.y);
          dispatch_gate(activation,
                        [&]<Activation chosen>() { glu_row_backward<chosen>(dy_row, gate, up, f, dgate, dup); });
          finish_row(dgate, f, to_gate);
          finish_row(dup, f, to_up);
        }
      });
    });
  }

 private:
  static std::int64_t row_grain(std::int64_t h) { return std::max<std::int64_t>(1, grain / h); }

  template <class A>
  struct RowBuffers {
    RowBuffers(ScratchPool& pool, std::int64_t h)
        : lease(pool, 4 * (static_cast<std::size_t>(h) * sizeof(A) + 64)),
          x(lease.take<A>(h)),
          y(lease.take<A>(h)),
          out(lease.take<A>(h)),
          factor(lease.take<A>(h)) {}
    ScratchPool::Lease lease;
    A* x;
    A* y;
    A* out;
    A* factor;
  };

  /// z = operation(x, y), element by element; z may be x or y.
  template <class T, class Function>
  void combine(const T* x, const T* y, TensorView z, Function operation) {
    using A = Accumulation<T>;
    T* out = z.as<T>();
    pool_.parallel_ranges(z.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
      A x_buffer[chunk], y_buffer[chunk];
      for (std::int64_t i = begin; i < end; i += chunk) {
        const std::int64_t n = std::min(chunk, end - i);
        const A* x_row = row_in(x + i, n, x_buffer);
        const A* y_row = y == x ? x_row : row_in(y + i, n, y_buffer);
        A* row = row_out(out + i, y_buffer);
#pragma omp simd
        for (std::int64_t j = 0; j < n; ++j) row[j] = operation(x_row[j], y_row[j]);
        finish_row(row, n, out + i);
      }
    });
  }

  ThreadPool& pool_;
  ScratchPool scratch_;
};

}  // namespace

std::unique_ptr<ElementwiseKernels> make_elementwise(ThreadPool& pool) {
  return std::make_unique<CpuElementwise>(pool);
}

}  // namespace trireme::cpu
