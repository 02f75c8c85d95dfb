#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "src/backend/cpu/activation.hpp"
#include "src/backend/cpu/scratch.hpp"
#include "src/backend/kernels/fp8.hpp"
#include "src/backend/kernels/kernel_call.hpp"
#include "src/base/thread_pool.hpp"

namespace trireme::cpu {

/// Rows and columns of the blocks of an operand.
struct Fp8Blocks {
  std::int64_t rows, columns;
};
constexpr Fp8Blocks fp8_along_rows{1, fp8_block}, fp8_along_columns{fp8_block, 1}, fp8_squares{fp8_block, fp8_block};

/// An operand of a product: a tensor or, for its lifetime, a copy of it or of its source's result, rounded to FP8 and
/// back. Numbers of FP8 times a power of two are exact in every training type but fp16.
class ProductOperand {
 public:
  ProductOperand(ThreadPool& pool, ScratchPool& scratch, ConstTensorView x, const Fp8Operand* fp8, int margin,
                 Fp8Blocks blocks)
      : given_memory_(scratch, fp8 == nullptr || fp8->source.activation == Activation::none ? 0 : x.size_bytes()),
        memory_(scratch, fp8 == nullptr ? 0 : x.size_bytes()),
        given_(x),
        view_(x) {
    if (fp8 == nullptr || x.numel() == 0) return;
    TRIREME_CHECK(x.dtype() != DType::fp16, ConfigError, "<fp8_format> does not support fp16: use <bf16>");
    dispatch_float(x.dtype(), [&]<class T>() {
      if (fp8->source.activation != Activation::none) {
        T* const given = given_memory_.take<T>(x.numel());
        compute(pool, x.as<T>(), x.numel(), fp8->source, given);
        given_ = ConstTensorView(reinterpret_cast<const std::byte*>(given), x.dtype(), x.shape());
      }
      T* const rounded = memory_.take<T>(x.numel());
      round<T>(pool, scratch, given_, *fp8, margin, fp8->amax ? Fp8Blocks{band_rows, fp8_block} : blocks, rounded);
      view_ = ConstTensorView(reinterpret_cast<const std::byte*>(rounded), x.dtype(), x.shape());
    });
  }

  const ConstTensorView& view() const { return view_; }
  /// The tensor before it is rounded to FP8.
  const ConstTensorView& given() const { return given_; }

 private:
  /// Rows per task, if all have one scale.
  static constexpr std::int64_t band_rows = 16;

  template <class T>
  static void compute(ThreadPool& pool, const T* x, std::int64_t numel, const Fp8Source& source, T* given) {
    using A = Accumulation<T>;
    const T* z = source.pre_activation ? source.pre_activation.as<T>() : nullptr;
    constexpr std::int64_t piece = 4096;
    dispatch_activation(source.activation, [&]<Activation kind>() {
      pool.parallel_for((numel + piece - 1) / piece, [&](std::int64_t task) {
        const std::int64_t end = std::min(numel, (task + 1) * piece);
#pragma omp simd
        for (std::int64_t i = task * piece; i < end; ++i) {
          const A value = static_cast<A>(x[i]);
          given[i] = static_cast<T>(z == nullptr ? activate<kind>(value)
                                                 : value * activation_derivative<kind>(static_cast<A>(z[i])));
        }
      });
    });
  }

  template <class T>
  static void round(ThreadPool& pool, ScratchPool& scratch, ConstTensorView x, const Fp8Operand& fp8, int margin,
                    Fp8Blocks blocks, T* rounded) {
    const std::int64_t rows = rows_of(x.shape()), columns = x.shape().back();
    const Fp8Format format = fp8.format;
    std::optional<int> given;
    if (fp8.amax) given = fp8_scale_exponent(static_cast<float>(*fp8.amax.as<double>()), format, margin);
    pool.parallel_for((rows + blocks.rows - 1) / blocks.rows, [&](std::int64_t band) {
      const std::int64_t first = band * blocks.rows, end = std::min(first + blocks.rows, rows);
      ScratchPool::Lease lease(scratch, static_cast<std::size_t>(3 * (columns + 16)) * sizeof(float));
      float* const largest = lease.take<float>(columns);
      float* const scale = lease.take<float>(columns);
      float* const inverse = lease.take<float>(columns);
      std::fill_n(largest, columns, 0.0f);
      if (!given || fp8.seen) {
        for (std::int64_t i = first; i < end; ++i) {
          const T* row = x.as<T>() + i * columns;
#pragma omp simd
          for (std::int64_t j = 0; j < columns; ++j) {
            // By its bits a NaN is the largest.
            const float size = std::abs(static_cast<float>(row[j]));
            largest[j] =
                std::bit_cast<std::int32_t>(size) > std::bit_cast<std::int32_t>(largest[j]) ? size : largest[j];
          }
        }
      }
      if (fp8.seen) note(largest, columns, fp8.seen);
      for (std::int64_t j = 0; j < columns; j += blocks.columns) {
        const std::int64_t to = std::min(j + blocks.columns, columns);
        const int e = given ? *given : fp8_scale_exponent(*std::max_element(largest + j, largest + to), format, margin);
        std::fill(scale + j, scale + to, power_of_two(e));
        std::fill(inverse + j, inverse + to, power_of_two(-e));
      }
      for (std::int64_t i = first; i < end; ++i) {
        const T* row = x.as<T>() + i * columns;
        T* to = rounded + i * columns;
#pragma omp simd
        for (std::int64_t j = 0; j < columns; ++j) {
          to[j] = static_cast<T>(round_to_fp8(static_cast<float>(row[j]) * scale[j], format) * inverse[j]);
        }
      }
    });
  }

  /// seen = max(seen, sizes), in any order of tasks.
  static void note(const float* sizes, std::int64_t count, TensorView seen) {
    double largest = 0;
    for (std::int64_t j = 0; j < count; ++j) {
      const double size = sizes[j];
      largest = size <= largest ? largest : size == size ? size : std::numeric_limits<double>::infinity();
    }
    const std::atomic_ref<double> shared(*seen.as<double>());
    double before = shared.load();
    while (before < largest && !shared.compare_exchange_weak(before, largest)) {
    }
  }

  ScratchPool::Lease given_memory_, memory_;
  ConstTensorView given_, view_;
};

}  // namespace trireme::cpu
