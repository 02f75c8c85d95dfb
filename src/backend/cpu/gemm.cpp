#include "src/backend/kernels/gemm.hpp"

#include <cblas.h>

#include <algorithm>

#include "src/backend/cpu/activation.hpp"
#include "src/backend/cpu/bf16_matmul.hpp"
#include "src/backend/cpu/column_sums.hpp"
#include "src/backend/cpu/cpu_backend.hpp"
#include "src/backend/cpu/matrix.hpp"
#include "src/backend/cpu/rows.hpp"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cpu {
namespace {

/// Extents of the tiles of a product that tasks compute; they depend on nothing, so neither do the bits.
constexpr std::int64_t tile_rows = 256, tile_columns = 512;
/// Terms of a sum that are converted and multiplied at a time, for types that are computed with in fp32.
constexpr std::int64_t tile_depth = 512;

/// c = a b, or c += a b, on the calling thread; a [m, k], b [k, n], c [m, n].
template <class A>
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix<A>& a, const Matrix<A>& b, bool accumulate,
              A* c, std::int64_t c_stride) {
  const A beta = accumulate ? A{1} : A{0};
  const auto order = [](const Matrix<A>& matrix) { return matrix.transposed ? CblasTrans : CblasNoTrans; };
  const auto size = [](std::int64_t extent) { return static_cast<blasint>(std::max<std::int64_t>(1, extent)); };
  if constexpr (std::is_same_v<A, double>) {
    cblas_dgemm(CblasRowMajor, order(a), order(b), static_cast<blasint>(m), static_cast<blasint>(n),
                static_cast<blasint>(k), 1, a.data, size(a.stride), b.data, size(b.stride), beta, c, size(c_stride));
  } else {
    cblas_sgemm(CblasRowMajor, order(a), order(b), static_cast<blasint>(m), static_cast<blasint>(n),
                static_cast<blasint>(k), 1, a.data, size(a.stride), b.data, size(b.stride), beta, c, size(c_stride));
  }
}

/// The part of a matrix of 16-bit numbers that begins at (i, k) in fp32, in `buffer`.
template <class T>
Matrix<float> convert_part(const Matrix<T>& matrix, std::int64_t i, std::int64_t rows, std::int64_t k,
                           std::int64_t columns, float* buffer) {
  const T* from = matrix.at(i, k);
  if (matrix.transposed) std::swap(rows, columns);
  for (std::int64_t r = 0; r < rows; ++r) load_row(from + r * matrix.stride, columns, buffer + r * columns);
  return {buffer, columns, matrix.transposed};
}

class CpuGemm final : public GemmKernels {
 public:
  explicit CpuGemm(ThreadPool& pool) : pool_(pool) {
    openblas_set_num_threads(1);
    if (Bf16Matmul::available()) bf16_matmul_ = std::make_unique<Bf16Matmul>();
  }

  void linear(Stream&, ConstTensorView x, ConstTensorView w, ConstTensorView bias, Activation activation,
              TensorView pre_activation, TensorView y) override {
    check_linear(x, w, bias, pre_activation, y);
    dispatch_float(x.dtype(), [&]<class T>() {
      using A = Accumulation<T>;
      const std::int64_t n = rows_of(x.shape()), in = x.shape().back(), out = y.shape().back();
      const T* added = bias ? bias.as<T>() : nullptr;
      T* z = activation != Activation::none && pre_activation ? pre_activation.as<T>() : nullptr;
      T* result = y.as<T>();
      dispatch_activation(activation, [&]<Activation kind>() {
        const auto finish = [&](const A* tile, std::int64_t stride, std::int64_t i, std::int64_t j, std::int64_t rows,
                                std::int64_t columns) {
          A bias_buffer[tile_columns], z_buffer[tile_columns];
          const A* bias_row = added == nullptr ? nullptr : row_in(added + j, columns, bias_buffer);
          for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t at = (i + r) * out + j;
            const A* sums = tile + r * stride;
            if (bias_row != nullptr) {
              for (std::int64_t c = 0; c < columns; ++c) z_buffer[c] = sums[c] + bias_row[c];
              sums = z_buffer;
            }
            if (z != nullptr) put(sums, columns, z + at);
            if constexpr (kind != Activation::none) {
              for (std::int64_t c = 0; c < columns; ++c) z_buffer[c] = activate<kind>(sums[c]);
              sums = z_buffer;
            }
            put(sums, columns, result + at);
          }
        };
        product(Matrix<T>{x.as<T>(), in, false}, Matrix<T>{w.as<T>(), in, true}, n, out, in, result, finish);
      });
    });
  }

  void linear_backward_input(Stream&, ConstTensorView dy, ConstTensorView w, Activation activation,
                             ConstTensorView pre_activation, TensorView dx) override {
    check_linear_backward_input(dy, w, activation, pre_activation, dx);
    dispatch_float(dy.dtype(), [&]<class T>() {
      using A = Accumulation<T>;
      const std::int64_t n = rows_of(dy.shape()), out = dy.shape().back(), in = dx.shape().back();
      const T* z = activation == Activation::none ? nullptr : pre_activation.as<T>();
      T* result = dx.as<T>();
      dispatch_activation(activation, [&]<Activation kind>() {
        const auto finish = [&](const A* tile, std::int64_t stride, std::int64_t i, std::int64_t j, std::int64_t rows,
                                std::int64_t columns) {
          A buffer[tile_columns];
          for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t at = (i + r) * in + j;
            const A* sums = tile + r * stride;
            if constexpr (kind != Activation::none) {
              const A* z_row = row_in(z + at, columns, buffer);
              for (std::int64_t c = 0; c < columns; ++c) buffer[c] = sums[c] * activation_derivative<kind>(z_row[c]);
              sums = buffer;
            }
            put(sums, columns, result + at);
          }
        };
        product(Matrix<T>{dy.as<T>(), out, false}, Matrix<T>{w.as<T>(), in, false}, n, in, out, result, finish);
      });
    });
  }

  void linear_backward_weight(Stream&, ConstTensorView dy, ConstTensorView x, TensorView dw,
                              TensorView dbias) override {
    check_linear_backward_weight(dy, x, dw, dbias);
    dispatch_float(dy.dtype(), [&]<class T>() {
      using A = Accumulation<T>;
      const std::int64_t n = rows_of(dy.shape()), out = dy.shape().back(), in = x.shape().back();
      accumulate_product(Matrix<T>{dy.as<T>(), out, true}, Matrix<T>{x.as<T>(), in, false}, out, in, n, dw.as<A>());
      if (!dbias) return;
      const T* gradient = dy.as<T>();
      sum_columns(pool_, scratch_, n, out, dbias.as<A>(), [&](std::int64_t begin, std::int64_t end, A* partial) {
        ScratchPool::Lease lease(scratch_, static_cast<std::size_t>(out) * sizeof(A));
        A* buffer = lease.take<A>(out);
        for (std::int64_t i = begin; i < end; ++i) {
          const A* row = row_in(gradient + i * out, out, buffer);
#pragma omp simd
          for (std::int64_t j = 0; j < out; ++j) partial[j] += row[j];
        }
      });
    });
  }

 private:
  template <class T>
  static void put(const Accumulation<T>* from, std::int64_t n, T* to) {
    if constexpr (std::is_same_v<T, Accumulation<T>>) {
      if (from != to) std::copy_n(from, n, to);
    } else {
      store_row(from, n, to);
    }
  }

  /// Calls task(i, j, rows, columns) for all tiles of an [m, n] matrix.
  template <class Task>
  void for_each_tile(std::int64_t m, std::int64_t n, Task&& task) {
    const std::int64_t down = (m + tile_rows - 1) / tile_rows, across = (n + tile_columns - 1) / tile_columns;
    pool_.parallel_for(down * across, [&](std::int64_t index) {
      const std::int64_t i = index % down * tile_rows, j = index / down * tile_columns;
      task(i, j, std::min(tile_rows, m - i), std::min(tile_columns, n - j));
    });
  }

  /// c = a b, or c += a b, for the tile of the product at (i, j), which lies at c.
  template <class T>
  void multiply_tile(const Matrix<T>& a, const Matrix<T>& b, std::int64_t i, std::int64_t j, std::int64_t rows,
                     std::int64_t columns, std::int64_t k, bool accumulate, Accumulation<T>* c, std::int64_t c_stride) {
    using A = Accumulation<T>;
    if (k == 0) {
      for (std::int64_t r = 0; r < rows && !accumulate; ++r) std::fill_n(c + r * c_stride, columns, A{0});
    } else if constexpr (std::is_same_v<T, A>) {
      multiply(rows, columns, k, a.part(i, 0), b.part(0, j), accumulate, c, c_stride);
    } else {
      ScratchPool::Lease lease(scratch_, (tile_rows + tile_columns) * tile_depth * sizeof(A));
      A* a_buffer = lease.take<A>(tile_rows * tile_depth);
      A* b_buffer = lease.take<A>(tile_columns * tile_depth);
      for (std::int64_t begin = 0; begin < k; begin += tile_depth) {
        const std::int64_t depth = std::min(tile_depth, k - begin);
        if constexpr (std::is_same_v<T, bf16>) {
          if (bf16_matmul_ != nullptr) {
            bf16_matmul_->multiply(rows, columns, depth, a.part(i, begin), b.part(begin, j), accumulate || begin > 0, c,
                                   c_stride);
            continue;
          }
        }
        multiply(rows, columns, depth, convert_part(a, i, rows, begin, depth, a_buffer),
                 convert_part(b, begin, depth, j, columns, b_buffer), accumulate || begin > 0, c, c_stride);
      }
    }
  }

  /// Computes the tiles of a b, [m, n], and hands each to `finish` (tile, its stride, i, j, rows, columns). Where T is
  /// its own accumulation type the tile is in `result`, else in scratch memory.
  template <class T, class Finish>
  void product(const Matrix<T>& a, const Matrix<T>& b, std::int64_t m, std::int64_t n, std::int64_t k, T* result,
               Finish&& finish) {
    using A = Accumulation<T>;
    for_each_tile(m, n, [&](std::int64_t i, std::int64_t j, std::int64_t rows, std::int64_t columns) {
      if constexpr (std::is_same_v<T, A>) {
        multiply_tile(a, b, i, j, rows, columns, k, false, result + i * n + j, n);
        finish(result + i * n + j, n, i, j, rows, columns);
      } else {
        ScratchPool::Lease lease(scratch_, tile_rows * tile_columns * sizeof(A));
        A* tile = lease.take<A>(tile_rows * tile_columns);
        multiply_tile(a, b, i, j, rows, columns, k, false, tile, columns);
        finish(tile, columns, i, j, rows, columns);
      }
    });
  }

  /// c += a b, c [m, n].
  template <class T>
  void accumulate_product(const Matrix<T>& a, const Matrix<T>& b, std::int64_t m, std::int64_t n, std::int64_t k,
                          Accumulation<T>* c) {
    for_each_tile(m, n, [&](std::int64_t i, std::int64_t j, std::int64_t rows, std::int64_t columns) {
      multiply_tile(a, b, i, j, rows, columns, k, true, c + i * n + j, n);
    });
  }

  ThreadPool& pool_;
  ScratchPool scratch_;
  std::unique_ptr<Bf16Matmul> bf16_matmul_;  // none where the machine has no bf16 instructions
};

}  // namespace

std::unique_ptr<GemmKernels> make_gemm(ThreadPool& pool) { return std::make_unique<CpuGemm>(pool); }

}  // namespace trireme::cpu
