#include "src/backend/kernels/gemm.hpp"

#include <cblas.h>
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>

#include "src/backend/cpu/activation.hpp"
#include "src/backend/cpu/bf16_matmul.hpp"
#include "src/backend/cpu/column_sums.hpp"
#include "src/backend/cpu/cpu_backend.hpp"
#include "src/backend/cpu/rows.hpp"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cpu {
namespace {

/// Largest tile extents per task: the libraries reach full speed on them, and an fp32 tile stays in the L2 cache for
/// the next operation.
constexpr std::int64_t tile_rows = 256, tile_columns = 512;
/// Depth of k per call, for oneDNN and for types that are first converted.
constexpr std::int64_t bf16_depth = 1024, converted_depth = 512;
/// Minimum number of tasks, if k is long enough to be split between tasks.
constexpr std::int64_t split_tasks = 6, split_depth = 256;

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
/// Returns the extent of blocks that divide `whole` evenly: at most `limit`, a multiple of 32.
constexpr std::int64_t even_extent(std::int64_t whole, std::int64_t limit) {
  return whole == 0 ? limit : divide_up(divide_up(whole, divide_up(whole, limit)), 32) * 32;
}

/// Checks that `ulimit -v` leaves addresses for the buffers of OpenBLAS, one for each of `threads`: it would try
/// indefinitely to map them. Throws EnvironmentError.
void check_blas_buffers(int threads) {
  constexpr std::size_t mebibytes = 160;  // 128 for a buffer on x86-64, and the rest for the thread's other mappings
  const std::size_t all = static_cast<std::size_t>(threads) * mebibytes;
  void* const room = mmap(nullptr, all << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TRIREME_CHECK(
      room != MAP_FAILED, EnvironmentError,
      "OpenBLAS needs {} MiB of addresses for the products of {} threads, which ulimit -v does not leave: raise "
      "it, or set TRIREME_THREADS to a lower number",
      all, threads);
  munmap(room, all << 20);
}

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
#if defined(__x86_64__)  // elsewhere oneDNN has no generated code for this
    // oneDNN's product is the faster of the two, especially for long k or narrow n.
    omp_set_num_threads(1);  // for single-threaded products
    const auto letter = [](const Matrix<A>& matrix) { return matrix.transposed ? 'T' : 'N'; };
    const auto extent = [](std::int64_t stride) { return std::max<std::int64_t>(1, stride); };
    const dnnl::status status = dnnl::sgemm(letter(a), letter(b), m, n, k, 1, a.data, extent(a.stride), b.data,
                                            extent(b.stride), beta, c, extent(c_stride));
    TRIREME_CHECK(status == dnnl::status::success, EnvironmentError,
                  "oneDNN failed with status {} on an fp32 product of {} x {} x {}", static_cast<int>(status), m, n, k);
#else
    cblas_sgemm(CblasRowMajor, order(a), order(b), static_cast<blasint>(m), static_cast<blasint>(n),
                static_cast<blasint>(k), 1, a.data, size(a.stride), b.data, size(b.stride), beta, c, size(c_stride));
#endif
  }
}

/// Block of a matrix of 16-bit numbers that begins at (i, k), in fp32 in `buffer`.
template <class T>
Matrix<float> convert_block(const Matrix<T>& matrix, std::int64_t i, std::int64_t rows, std::int64_t k,
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
          A bias_row[tile_columns], z_buffer[tile_columns], y_buffer[tile_columns];
          if (added == nullptr)
            std::fill_n(bias_row, columns, A{0});
          else
            load_row(added + j, columns, bias_row);
          for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t at = (i + r) * out + j;
            const A* sums = tile + r * stride;
            A* z_row = z == nullptr ? z_buffer : row_out(z + at, z_buffer);
            A* y_row = row_out(result + at, y_buffer);
#pragma omp simd
            for (std::int64_t c = 0; c < columns; ++c) {
              const A sum = sums[c] + bias_row[c];
              if constexpr (kind != Activation::none) z_row[c] = sum;
              y_row[c] = activate<kind>(sum);
            }
            if (kind != Activation::none && z != nullptr) finish_row(z_row, columns, z + at);
            finish_row(y_row, columns, result + at);
          }
        };
        const Matrix<T> a{x.as<T>(), in, false}, b{w.as<T>(), in, true};
        if (kind != Activation::none || !rounded_product(a, b, n, out, in, added, result)) {
          product(a, b, n, out, in, result, finish);
        }
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
          A z_buffer[tile_columns], dx_buffer[tile_columns];
          for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t at = (i + r) * in + j;
            const A* sums = tile + r * stride;
            if constexpr (kind == Activation::none) {
              finish_row(sums, columns, result + at);
            } else {
              const A* z_row = row_in(z + at, columns, z_buffer);
              A* dx_row = row_out(result + at, dx_buffer);
#pragma omp simd
              for (std::int64_t c = 0; c < columns; ++c) dx_row[c] = sums[c] * activation_derivative<kind>(z_row[c]);
              finish_row(dx_row, columns, result + at);
            }
          }
        };
        const Matrix<T> a{dy.as<T>(), out, false}, b{w.as<T>(), in, false};
        if (kind != Activation::none || !rounded_product<T>(a, b, n, in, out, nullptr, result)) {
          product(a, b, n, in, out, result, finish);
        }
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
  /// Calls task(i, j, rows, columns) for all tiles of an [m, n] matrix.
  template <class Task>
  void for_each_tile(std::int64_t m, std::int64_t n, Task&& task) {
    const std::int64_t columns = even_extent(n, tile_columns), rows = even_extent(m, tile_rows);
    const std::int64_t down = divide_up(m, rows);
    pool_.parallel_for(down * divide_up(n, columns), [&](std::int64_t index) {
      const std::int64_t i = index % down * rows, j = index / down * columns;
      task(i, j, std::min(rows, m - i), std::min(columns, n - j));
    });
  }

  /// c = a b, or c += a b, for the tile of the product at (i, j), stored at c.
  template <class T>
  void multiply_tile(const Matrix<T>& a, const Matrix<T>& b, std::int64_t i, std::int64_t j, std::int64_t rows,
                     std::int64_t columns, std::int64_t k, bool accumulate, Accumulation<T>* c, std::int64_t c_stride) {
    using A = Accumulation<T>;
    if (k == 0) {
      for (std::int64_t r = 0; r < rows && !accumulate; ++r) std::fill_n(c + r * c_stride, columns, A{0});
    } else if constexpr (std::is_same_v<T, A>) {
      if (std::is_same_v<A, double>) std::call_once(buffers_checked_, check_blas_buffers, pool_.threads());
      multiply(rows, columns, k, a.block(i, 0), b.block(0, j), accumulate, c, c_stride);
    } else {
      if constexpr (std::is_same_v<T, bf16>) {
        if (bf16_matmul_ != nullptr) {
          for (std::int64_t begin = 0; begin < k; begin += bf16_depth) {
            bf16_matmul_->multiply(rows, columns, std::min(bf16_depth, k - begin), a.block(i, begin), b.block(begin, j),
                                   accumulate || begin > 0, c, c_stride);
          }
          return;
        }
      }
      ScratchPool::Lease lease(scratch_, (tile_rows + tile_columns) * converted_depth * sizeof(A));
      A* a_buffer = lease.take<A>(tile_rows * converted_depth);
      A* b_buffer = lease.take<A>(tile_columns * converted_depth);
      for (std::int64_t begin = 0; begin < k; begin += converted_depth) {
        const std::int64_t depth = std::min(converted_depth, k - begin);
        multiply(rows, columns, depth, convert_block(a, i, rows, begin, depth, a_buffer),
                 convert_block(b, begin, depth, j, columns, b_buffer), accumulate || begin > 0, c, c_stride);
      }
    }
  }

  /// result = a b + bias if one call per tile can do all that; returns false otherwise.
  template <class T>
  bool rounded_product(const Matrix<T>& a, const Matrix<T>& b, std::int64_t m, std::int64_t n, std::int64_t k,
                       const T* bias, T* result) {
    if constexpr (std::is_same_v<T, bf16>) {
      if (bf16_matmul_ == nullptr || k == 0) return false;
      for_each_tile(m, n, [&](std::int64_t i, std::int64_t j, std::int64_t rows, std::int64_t columns) {
        bf16_matmul_->multiply(rows, columns, k, a.block(i, 0), b.block(0, j), bias == nullptr ? nullptr : bias + j,
                               result + i * n + j, n);
      });
      return true;
    } else {
      return false;
    }
  }

  /// Computes the tiles of a b, [m, n], and hands each to `finish` (tile, its stride, i, j, rows, columns). If T is its
  /// own accumulation type the tile is in `result`, else in scratch memory.
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

  /// c += a b, c [m, n]. With few tiles, k is split between tasks, and the partial sums are added in order.
  template <class T>
  void accumulate_product(const Matrix<T>& a, const Matrix<T>& b, std::int64_t m, std::int64_t n, std::int64_t k,
                          Accumulation<T>* c) {
    using A = Accumulation<T>;
    if (m == 0 || n == 0 || k == 0) return;
    const std::int64_t rows = even_extent(m, tile_rows), columns = even_extent(n, tile_columns);
    const std::int64_t down = divide_up(m, rows), tiles = down * divide_up(n, columns);
    const std::int64_t target_splits = std::min(divide_up(split_tasks, tiles), divide_up(k, split_depth));
    const std::int64_t depth = divide_up(divide_up(k, target_splits), 32) * 32, splits = divide_up(k, depth);
    ScratchPool::Lease lease(scratch_, static_cast<std::size_t>((splits - 1) * m * n) * sizeof(A));
    A* others = lease.take<A>((splits - 1) * m * n);  // the first split writes to c directly
    pool_.parallel_for(tiles * splits, [&](std::int64_t index) {
      const std::int64_t i = index % down * rows, j = index / down % (tiles / down) * columns, split = index / tiles;
      multiply_tile(a.block(0, split * depth), b.block(split * depth, 0), i, j, std::min(rows, m - i),
                    std::min(columns, n - j), std::min(depth, k - split * depth), split == 0,
                    (split == 0 ? c : others + (split - 1) * m * n) + i * n + j, n);
    });
    if (splits == 1) return;
    pool_.parallel_ranges(m * n, 8192, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t split = 0; split < splits - 1; ++split) {
#pragma omp simd
        for (std::int64_t e = begin; e < end; ++e) c[e] += others[split * m * n + e];
      }
    });
  }

  ThreadPool& pool_;
  ScratchPool scratch_;
  std::once_flag buffers_checked_;
  std::unique_ptr<Bf16Matmul> bf16_matmul_;  // null if the machine has no bf16 instructions
};

}  // namespace

std::unique_ptr<GemmKernels> make_gemm(ThreadPool& pool) { return std::make_unique<CpuGemm>(pool); }

}  // namespace trireme::cpu
