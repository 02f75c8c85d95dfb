#include "src/backend/kernels/elementwise.hpp"

#include "cuda/kernels/activation.cuh"
#include "cuda/kernels/dispatch.cuh"
#include "cuda/kernels/dropout.cuh"
#include "cuda/kernels/families.hpp"
#include "cuda/kernels/sums.cuh"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cuda {
namespace {

// Bytes read and written per 16-bit element: convert to fp32 6, add and multiply 6, scale 4, bias_dropout_add 6, its
// backward 4, activate and soft_cap 4, backward of activate 6. For each element of y: glu 6, its backward 10.

/// Returns the fp32 number nearest to `value` towards zero, with its last bit set if it is not exact. Rounding it to 16
/// bits then rounds the value once.
__host__ __device__ float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || value != value) return nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if (fabs(static_cast<double>(nearest)) > fabs(value)) --bits;
  return std::bit_cast<float>(bits | 1U);
}

template <class T>
__global__ void __launch_bounds__(block_threads) fill_kernel(std::int64_t n, T value, T* y) {
  const Vec8 range = vec8_at(global_thread(), n);
  T values[8];
  for (T& v : values) v = value;
  store_raw(values, range.size, y + range.begin);
}

template <class From, class To>
__device__ To converted(From x) {
  if constexpr (std::is_same_v<From, To>) {
    return x;
  } else if constexpr (std::is_same_v<From, double> && sizeof(To) == 2) {
    return gpu::narrow<To>(round_to_odd(x));
  } else {
    return gpu::narrow<To>(static_cast<Accumulation<To>>(gpu::widen(x)));
  }
}
template <class From, class To>
__global__ void __launch_bounds__(block_threads) convert_kernel(std::int64_t n, const From* x, To* y) {
  const Vec8 range = vec8_at(global_thread(), n);
  From from[8]{};
  To to[8];
  load_raw(x + range.begin, range.size, from);
  for (int c = 0; c < 8; ++c) to[c] = converted<From, To>(from[c]);
  store_raw(to, range.size, y + range.begin);
}

/// y = factor y + x; without x if null.
template <class T>
__global__ void __launch_bounds__(block_threads)
    scale_add_kernel(std::int64_t n, Accumulation<T> factor, const T* x, T* y) {
  const Vec8 range = vec8_at(global_thread(), n);
  PackedVec8<T> own(y + range.begin, range.size), other;
  if (x != nullptr) other.load(x + range.begin, range.size);
  Accumulation<T> value[8], added[8];
  own.unpack(value);
  other.unpack(added);
  for (int c = 0; c < 8; ++c) value[c] = factor * value[c] + added[c];
  store(value, range.size, y + range.begin);
}

template <class T>
__global__ void __launch_bounds__(block_threads) multiply_kernel(std::int64_t n, const T* x, T* y) {
  const Vec8 range = vec8_at(global_thread(), n);
  Accumulation<T> value[8], factor[8];
  load(y + range.begin, range.size, value);
  load(x + range.begin, range.size, factor);
  for (int c = 0; c < 8; ++c) value[c] *= factor[c];
  store(value, range.size, y + range.begin);
}

/// Blocks of one part follow one another.
template <class T>
__global__ void __launch_bounds__(block_threads)
    divide_by_norms_kernel(std::int64_t part, const double* squares, Accumulation<T> least, const T* x, T* y) {
  using A = Accumulation<T>;
  const std::int64_t blocks = blocks_for(vec8s_of(part)), own = blockIdx.x / blocks;
  const Vec8 range = vec8_at(blockIdx.x % blocks * block_threads + threadIdx.x, part);
  const std::int64_t begin = own * part + range.begin;
  const A norm = std::sqrt(static_cast<A>(squares[own])), factor = 1 / (norm > least ? norm : least);
  A value[8];
  load(x + begin, range.size, value);
  for (auto& v : value) v *= factor;
  store(value, range.size, y + begin);
}

/// One thread per eight columns of a row.
template <class T>
__global__ void __launch_bounds__(block_threads)
    bias_dropout_add_kernel(std::int64_t rows, std::int64_t h, std::int64_t batch, const T* x, const T* bias,
                            const T* residual, Dropout dropout, T* sum) {
  const std::int64_t row = global_thread() / vec8s_of(h);
  if (row >= rows) return;
  const Vec8 columns = vec8_at(global_thread() % vec8s_of(h), h);
  T rounded[8];
  const BranchEnd<T> end(x, bias, residual, h, row, columns);
  end.compute(dropout, DropoutRow(dropout, row, batch), columns, rounded);
  store_raw(rounded, columns.size, sum + row * h + columns.begin);
}

/// dx of eight columns of dsum, also left in `value`.
template <class T>
__device__ void drop_gradient(const PackedVec8<T>& dsum, const Dropout& dropout, std::int64_t batch, std::int64_t h,
                              std::int64_t row, std::int64_t vec8, T* dx, Accumulation<T> (&value)[8]) {
  Accumulation<T> factor[8]{};
  if (dropout.enabled()) {
    const DropoutRow dropout_row(dropout, row, batch);
    dropout_factors(dropout, dropout.key, dropout_row.sample, dropout_row.position, vec8, factor);
  }
  dsum.unpack(value);
  if (dropout.enabled()) {
    for (int c = 0; c < 8; ++c) value[c] *= factor[c];
  }
  const Vec8 columns = vec8_at(vec8, h);
  store(value, columns.size, dx + row * h + columns.begin);
}
template <class T>
__global__ void __launch_bounds__(block_threads)
    drop_gradient_kernel(std::int64_t rows, std::int64_t h, std::int64_t batch, const T* dsum, Dropout dropout, T* dx) {
  const std::int64_t row = global_thread() / vec8s_of(h), vec8 = global_thread() % vec8s_of(h);
  if (row >= rows) return;
  Accumulation<T> value[8];
  drop_gradient(load_vec8(dsum, h, row, vec8), dropout, batch, h, row, vec8, dx, value);
}
template <class T>
__global__ void __launch_bounds__(block_threads)
    drop_gradient_and_sum_kernel(RowChunks chunks, std::int64_t h, std::int64_t batch, const T* dsum, Dropout dropout,
                                 T* dx, Accumulation<T>* partials) {
  using A = Accumulation<T>;
  const auto fetch = [&](std::int64_t row, std::int64_t vec8) { return load_vec8(dsum, h, row, vec8); };
  sum_rows<1>(chunks, h, partials, fetch,
              [&](const PackedVec8<T>& own, std::int64_t row, std::int64_t vec8, A(&sums)[1][8]) {
                A value[8];
                drop_gradient(own, dropout, batch, h, row, vec8, dx, value);
                for (int c = 0; c < 8; ++c) sums[0][c] += value[c];
              });
}

template <class T>
__global__ void __launch_bounds__(block_threads)
    activate_kernel(std::int64_t n, Activation activation, const T* x, T* y) {
  const Vec8 range = vec8_at(global_thread(), n);
  Accumulation<T> value[8];
  load(x + range.begin, range.size, value);
  for (auto& v : value) v = activated(activation, v);
  store(value, range.size, y + range.begin);
}

/// y = cap tanh(y / cap).
template <class T>
__global__ void __launch_bounds__(block_threads) soft_cap_kernel(std::int64_t n, Accumulation<T> cap, T* y) {
  const Vec8 range = vec8_at(global_thread(), n);
  Accumulation<T> value[8];
  load(y + range.begin, range.size, value);
  for (auto& v : value) v = cap * std::tanh(v / cap);
  store(value, range.size, y + range.begin);
}

/// Activation of gates: silu or gelu_tanh.
template <bool silu>
constexpr Activation gate_activation = silu ? Activation::silu : Activation::gelu_tanh;

template <class T, bool silu>
__global__ void __launch_bounds__(block_threads) glu_kernel(std::int64_t rows, std::int64_t f, const T* gate_up, T* y) {
  const std::int64_t row = global_thread() / vec8s_of(f);
  if (row >= rows) return;
  const Vec8 range = vec8_at(global_thread() % vec8s_of(f), f);
  const T* gate_at = gate_up + 2 * row * f + range.begin;
  const PackedVec8 of_gate(gate_at, range.size), of_up(gate_at + f, range.size);
  Accumulation<T> gate[8], up[8];
  of_gate.unpack(gate);
  of_up.unpack(up);
  for (int c = 0; c < 8; ++c) gate[c] = activated(gate_activation<silu>, gate[c]) * up[c];
  store(gate, range.size, y + row * f + range.begin);
}

template <class T, bool silu>
__global__ void __launch_bounds__(block_threads)
    glu_backward_kernel(std::int64_t rows, std::int64_t f, const T* dy, const T* gate_up, T* dgate_up) {
  using A = Accumulation<T>;
  const std::int64_t row = global_thread() / vec8s_of(f);
  if (row >= rows) return;
  const Vec8 range = vec8_at(global_thread() % vec8s_of(f), f);
  const std::int64_t gate_at = 2 * row * f + range.begin, up_at = gate_at + f;
  const PackedVec8 of_dy(dy + row * f + range.begin, range.size);
  const PackedVec8 of_gate(gate_up + gate_at, range.size), of_up(gate_up + up_at, range.size);
  A gradient[8], gate[8], up[8];
  of_dy.unpack(gradient);
  of_gate.unpack(gate);
  of_up.unpack(up);
  for (int c = 0; c < 8; ++c) {
    const A x = gate[c];
    if constexpr (silu) {
      const A sigmoid = 1 / (1 + std::exp(-x));
      gate[c] = gradient[c] * up[c] * sigmoid * (1 + x * (1 - sigmoid));
      up[c] = gradient[c] * x * sigmoid;
    } else {
      gate[c] = gradient[c] * up[c] * activation_slope(gate_activation<silu>, x);
      up[c] = gradient[c] * activated(gate_activation<silu>, x);
    }
  }
  store(gate, range.size, dgate_up + gate_at);
  store(up, range.size, dgate_up + up_at);
}

class CudaElementwise final : public ElementwiseKernels {
 public:
  explicit CudaElementwise(Scratch scratch) : scratch_(std::move(scratch)) {}

  void fill(Stream& stream, double value, TensorView y) override {
    dispatch_float(y.dtype(), [&]<class T>() {
      T rounded;
      if constexpr (sizeof(T) == 2)
        rounded = T(round_to_odd(value));
      else
        rounded = static_cast<T>(value);
      launch_flat(stream, "fill", y.numel(), fill_kernel<T>, y.numel(), rounded, y.as<T>());
    });
  }

  void convert(Stream& stream, ConstTensorView x, TensorView y) override {
    check_same_size("convert", x, y);
    dispatch_gpu(x.dtype(), [&]<class From>() {
      dispatch_float(y.dtype(), [&]<class To>() {
        launch_flat(stream, "convert", y.numel(), convert_kernel<From, To>, y.numel(), x.as<From>(), y.as<To>());
      });
    });
  }

  void add(Stream& stream, ConstTensorView x, TensorView y) override {
    check_alike("add", x, y);
    dispatch_gpu(y.dtype(), [&]<class T>() {
      launch_flat(stream, "add", y.numel(), scale_add_kernel<T>, y.numel(), Accumulation<T>{1}, x.as<T>(), y.as<T>());
    });
  }

  void multiply(Stream& stream, ConstTensorView x, TensorView y) override {
    check_alike("multiply", x, y);
    dispatch_gpu(y.dtype(), [&]<class T>() {
      launch_flat(stream, "multiply", y.numel(), multiply_kernel<T>, y.numel(), x.as<T>(), y.as<T>());
    });
  }

  void scale(Stream& stream, double factor, TensorView y) override {
    dispatch_gpu(y.dtype(), [&]<class T>() {
      launch_flat(stream, "scale", y.numel(), scale_add_kernel<T>, y.numel(), static_cast<Accumulation<T>>(factor),
                  nullptr, y.as<T>());
    });
  }

  void bias_dropout_add(Stream& stream, ConstTensorView x, ConstTensorView bias, ConstTensorView residual,
                        const Dropout& dropout, TensorView sum) override {
    check_bias_dropout_add(x, bias, residual, dropout, sum);
    dispatch_gpu(x.dtype(), [&]<class T>() {
      const std::int64_t h = x.shape().back(), rows = rows_of(x.shape());
      launch_rows(stream, "bias_dropout_add", rows, h, bias_dropout_add_kernel<T>, rows, h, batch_of(x), x.as<T>(),
                  bias ? bias.as<T>() : nullptr, residual.as<T>(), dropout, sum.as<T>());
    });
  }

  void divide_by_norms(Stream& stream, ConstTensorView squares, double least, ConstTensorView x,
                       TensorView y) override {
    check_divide_by_norms(squares, x, y);
    dispatch_gpu(y.dtype(), [&]<class T, class A>() {
      const std::int64_t parts = squares.numel(), part = y.numel() / parts;
      gpu::launch(stream, {"divide_by_norms", parts * blocks_for(vec8s_of(part)), block_threads},
                  divide_by_norms_kernel<T>, part, squares.as<double>(), static_cast<A>(least), x.as<T>(), y.as<T>());
    });
  }

  void bias_dropout_add_backward(Stream& stream, ConstTensorView dsum, const Dropout& dropout, TensorView dx,
                                 TensorView dbias) override {
    check_bias_dropout_add_backward(dsum, dropout, dx, dbias);
    dispatch_gpu(dsum.dtype(), [&]<class T, class A>() {
      const std::int64_t h = dsum.shape().back(), rows = rows_of(dsum.shape());
      if (!dbias) {
        if (dropout.enabled() || dsum.data() != dx.data()) {
          launch_rows(stream, "bias_dropout_add_backward", rows, h, drop_gradient_kernel<T>, rows, h, batch_of(dsum),
                      dsum.as<T>(), dropout, dx.as<T>());
        }
        return;
      }
      if (rows == 0 || h == 0) return;
      const RowChunks chunks(rows);
      const Buffer partials = scratch_(stream, static_cast<std::size_t>(chunks.count * h) * sizeof(A));
      A* sums = reinterpret_cast<A*>(partials.data());
      gpu::launch(stream, {"bias_dropout_add_backward", chunks.count * column_tiles(h), block_threads},
                  drop_gradient_and_sum_kernel<T>, chunks, h, batch_of(dsum), dsum.as<T>(), dropout, dx.as<T>(), sums);
      add_chunks(stream, chunks.count, h, sums, dbias.as<A>());
    });
  }

  void activate(Stream& stream, Activation activation, ConstTensorView x, TensorView y) override {
    check_activate(x, y);
    dispatch_gpu(y.dtype(), [&]<class T>() {
      launch_flat(stream, "activate", y.numel(), activate_kernel<T>, y.numel(), activation, x.as<T>(), y.as<T>());
    });
  }

  void activate_backward(Stream& stream, Activation activation, ConstTensorView dy, ConstTensorView x,
                         TensorView dx) override {
    check_activate_backward(dy, x, dx);
    dispatch_gpu(dx.dtype(), [&]<class T>() {
      launch_flat(stream, "activate_backward", dx.numel(), activate_backward_kernel<T>, dx.numel(), activation,
                  dy.as<T>(), x.as<T>(), dx.as<T>());
    });
  }

  void soft_cap(Stream& stream, double cap, TensorView y) override {
    check_soft_cap(cap);
    dispatch_gpu(y.dtype(), [&]<class T>() {
      launch_flat(stream, "soft_cap", y.numel(), soft_cap_kernel<T>, y.numel(), static_cast<Accumulation<T>>(cap),
                  y.as<T>());
    });
  }

  void glu(Stream& stream, Activation activation, ConstTensorView gate_up, TensorView y) override {
    check_glu("glu", activation, y, {gate_up});
    dispatch_gpu(y.dtype(), [&]<class T>() {
      const std::int64_t f = y.shape().back(), rows = rows_of(y.shape());
      const auto kernel = activation == Activation::silu ? glu_kernel<T, true> : glu_kernel<T, false>;
      launch_rows(stream, "glu", rows, f, kernel, rows, f, gate_up.as<T>(), y.as<T>());
    });
  }

  void glu_backward(Stream& stream, Activation activation, ConstTensorView dy, ConstTensorView gate_up,
                    TensorView dgate_up) override {
    check_glu("glu_backward", activation, dy, {gate_up, dgate_up});
    dispatch_gpu(dy.dtype(), [&]<class T>() {
      const std::int64_t f = dy.shape().back(), rows = rows_of(dy.shape());
      const auto kernel = activation == Activation::silu ? glu_backward_kernel<T, true> : glu_backward_kernel<T, false>;
      launch_rows(stream, "glu_backward", rows, f, kernel, rows, f, dy.as<T>(), gate_up.as<T>(), dgate_up.as<T>());
    });
  }

 private:
  /// One thread per eight of n elements.
  template <class... Parameters>
  static void launch_flat(Stream& stream, const char* name, std::int64_t n, void (*kernel)(Parameters...),
                          std::type_identity_t<Parameters>... arguments) {
    gpu::launch(stream, {name, blocks_for(vec8s_of(n)), block_threads}, kernel, arguments...);
  }
  /// One thread per eight columns of each row.
  template <class... Parameters>
  static void launch_rows(Stream& stream, const char* name, std::int64_t rows, std::int64_t columns,
                          void (*kernel)(Parameters...), std::type_identity_t<Parameters>... arguments) {
    gpu::launch(stream, {name, blocks_for(rows * vec8s_of(columns)), block_threads}, kernel, arguments...);
  }
  /// Divisor of row numbers for position and sample. Without dropout it is unused, and not 0.
  static std::int64_t batch_of(ConstTensorView x) { return x.shape().rank() == 3 ? x.shape()[1] : 1; }

  Scratch scratch_;
};

}  // namespace

std::unique_ptr<ElementwiseKernels> make_elementwise(Scratch scratch) {
  return std::make_unique<CudaElementwise>(std::move(scratch));
}

}  // namespace trireme::cuda
