#include "src/backend/kernels/gemm.hpp"

#include <algorithm>
#include <vector>

#include "src/backend/cpu/activation.hpp"
#include "src/backend/cpu/column_sums.hpp"
#include "src/backend/cpu/cpu_backend.hpp"
#include "src/backend/cpu/fp8_operand.hpp"
#include "src/backend/cpu/tiled_products.hpp"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cpu {
namespace {

class CpuGemm final : public GemmKernels {
 public:
  explicit CpuGemm(ThreadPool& pool) : pool_(pool) {}

  void linear(Stream&, ConstTensorView x, ConstTensorView w, ConstTensorView bias, Activation activation,
              TensorView pre_activation, TensorView y, const std::optional<Fp8Product>& fp8) override {
    check_linear(x, w, bias, pre_activation, y);
    const ProductOperand input = first(x, fp8, fp8_along_rows), weight = second(w, fp8, fp8_squares);
    dispatch_float(x.dtype(), [&]<class T>() {
      const RowGroup<T> all{0, rows_of(x.shape()), {weight.view().as<T>(), x.shape().back(), true}};
      forward<T>({&all, 1}, input.view(), bias, activation, pre_activation, y);
    });
  }

  void linear_backward_input(Stream&, ConstTensorView dy, ConstTensorView w, Activation activation,
                             ConstTensorView pre_activation, TensorView dx,
                             const std::optional<Fp8Product>& fp8) override {
    check_linear_backward_input(dy, w, activation, pre_activation, dx);
    const ProductOperand gradient = first(dy, fp8, fp8_along_rows), weight = second(w, fp8, fp8_squares);
    dispatch_float(dy.dtype(), [&]<class T>() {
      const RowGroup<T> all{0, rows_of(dy.shape()), {weight.view().as<T>(), dx.shape().back(), false}};
      backward_input<T>({&all, 1}, gradient.view(), activation, pre_activation, dx);
    });
  }

  void linear_backward_weight(Stream&, ConstTensorView dy, ConstTensorView x, TensorView dw, TensorView dbias,
                              ProductSum sum, const std::optional<Fp8Product>& fp8) override {
    check_linear_backward_weight(dy, x, dw, dbias);
    const ProductOperand output = first(dy, fp8, fp8_along_columns), input = second(x, fp8, fp8_along_columns);
    dispatch_float(dy.dtype(), [&]<class T, class A>() {
      const std::int64_t n = rows_of(dy.shape()), out = dy.shape().back(), in = x.shape().back();
      const TermGroup<A> all{0, n, dw.as<A>(), sum};
      products_.accumulate<T>({output.view().as<T>(), out, true}, {input.view().as<T>(), in, false}, out, in,
                              {&all, 1});
      if (!dbias) return;
      const T* gradient = output.given().as<T>();
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

  void run_collected(Stream&) override {}  // each ran at once

  void grouped_linear(Stream&, std::span<const std::int64_t> rows, ConstTensorView x, std::span<const TensorView> w,
                      TensorView y) override {
    check_groups("grouped_linear", rows, x, w.size());
    for_each_group(rows, [&](std::size_t i, std::int64_t first, std::int64_t count) {
      check_linear(x.rows(first, count), w[i], {}, {}, y.rows(first, count));
    });
    dispatch_float(x.dtype(),
                   [&]<class T>() { forward<T>(row_groups<T>(rows, w, true), x, {}, Activation::none, {}, y); });
  }

  void grouped_backward_input(Stream&, std::span<const std::int64_t> rows, ConstTensorView dy,
                              std::span<const TensorView> w, TensorView dx) override {
    check_groups("grouped_backward_input", rows, dy, w.size());
    for_each_group(rows, [&](std::size_t i, std::int64_t first, std::int64_t count) {
      check_linear_backward_input(dy.rows(first, count), w[i], Activation::none, {}, dx.rows(first, count));
    });
    dispatch_float(dy.dtype(),
                   [&]<class T>() { backward_input<T>(row_groups<T>(rows, w, false), dy, Activation::none, {}, dx); });
  }

  void grouped_backward_weight(Stream&, std::span<const std::int64_t> rows, ConstTensorView dy, ConstTensorView x,
                               std::span<const TensorView> dw, std::span<const ProductSum> sums) override {
    check_groups("grouped_backward_weight", rows, dy, dw.size());
    for_each_group(rows, [&](std::size_t i, std::int64_t first, std::int64_t count) {
      check_linear_backward_weight(dy.rows(first, count), x.rows(first, count), dw[i], {});
    });
    dispatch_float(dy.dtype(), [&]<class T, class A>() {
      const std::int64_t out = dy.shape().back(), in = x.shape().back();
      std::vector<TermGroup<A>> groups;
      for_each_group(rows, [&](std::size_t i, std::int64_t first, std::int64_t count) {
        groups.push_back({first, count, dw[i].as<A>(), sum_of(sums, i)});
      });
      products_.accumulate<T>({dy.as<T>(), out, true}, {x.as<T>(), in, false}, out, in, groups);
    });
  }

  void batched(Stream&, const BatchedProduct& product, ConstTensorView a, ConstTensorView b, ConstTensorView c,
               TensorView d) override {
    check_batched(product, a, b, c, d);
    dispatch_float(d.dtype(), [&]<class T, class A>() {
      const std::int64_t m = d.shape()[1], n = d.shape()[2], k = a.shape()[product.a_transposed ? 1 : 2];
      const A alpha = static_cast<A>(product.alpha), beta = static_cast<A>(product.beta);
      for (std::int64_t i = 0; i < d.shape()[0]; ++i) {
        T* result = d.as<T>() + i * m * n;
        const T* added = product.beta == 0 ? nullptr : c.as<T>() + i * m * n;
        const auto finish = [&](const A* tile, std::int64_t stride, std::int64_t row, std::int64_t column,
                                std::int64_t rows, auto columns) {
          A c_buffer[tile_columns], d_buffer[tile_columns];
          for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t at = (row + r) * n + column;
            const A* sums = tile + r * stride;
            A* d_row = row_out(result + at, d_buffer);
#pragma omp simd
            for (std::int64_t e = 0; e < columns; ++e) d_row[e] = alpha * sums[e];
            if (added != nullptr) {
              const A* c_row = row_in(added + at, columns, c_buffer);
#pragma omp simd
              for (std::int64_t e = 0; e < columns; ++e) d_row[e] += beta * c_row[e];
            }
            finish_row(d_row, columns, result + at);
          }
        };
        const Matrix<T> left{a.as<T>() + i * m * k, product.a_transposed ? m : k, product.a_transposed};
        const RowGroup<T> all{0, m, {b.as<T>() + i * k * n, product.b_transposed ? k : n, product.b_transposed}};
        products_.compute<T>(left, {&all, 1}, n, k, result, finish);
      }
    });
  }

 private:
  static constexpr std::int64_t tile_columns = TiledProducts::tile_columns;
  /// Least size of results that are written past the caches: their first rows would leave them before they are read.
  static constexpr std::size_t streamed_bytes = std::size_t{32} << 20;

  ProductOperand first(ConstTensorView x, const std::optional<Fp8Product>& fp8, Fp8Blocks blocks) {
    return {pool_, scratch_, x, fp8 ? &fp8->first : nullptr, fp8 ? fp8->margin : 0, blocks};
  }
  ProductOperand second(ConstTensorView x, const std::optional<Fp8Product>& fp8, Fp8Blocks blocks) {
    return {pool_, scratch_, x, fp8 ? &fp8->second : nullptr, fp8 ? fp8->margin : 0, blocks};
  }

  template <class T>
  static TouchedMatrix touched(const T* data, std::int64_t columns) {
    constexpr auto bytes = static_cast<std::int64_t>(sizeof(T));
    return {data, columns * bytes, bytes};
  }

  /// Rounds a row of a tile to y; finish_row, or for a constant number of columns past the caches if `streams`.
  template <class T, class N>
  static void write_row(const Accumulation<T>* computed, N columns, T* y, bool streams) {
    if constexpr (std::is_same_v<T, bf16> && !std::is_same_v<N, std::int64_t>) {
      if (streams) {
        alignas(64) T rounded[N::value];
        store_row(computed, columns, rounded);
        return stream_row(rounded, columns, y);
      }
    }
    finish_row(computed, columns, y);
  }

  /// linear, with the b of each group instead of w.
  template <class T>
  void forward(std::span<const RowGroup<T>> groups, ConstTensorView x, ConstTensorView bias, Activation activation,
               TensorView pre_activation, TensorView y) {
    using A = Accumulation<T>;
    const std::int64_t in = x.shape().back(), out = y.shape().back();
    const T* added = bias ? bias.as<T>() : nullptr;
    T* z = activation != Activation::none && pre_activation ? pre_activation.as<T>() : nullptr;
    T* result = y.as<T>();
    const bool streams = y.size_bytes() >= streamed_bytes;
    dispatch_activation(activation, [&]<Activation kind>() {
      const auto finish = [&](const A* tile, std::int64_t stride, std::int64_t i, std::int64_t j, std::int64_t rows,
                              auto columns) {
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
          if (kind != Activation::none && z != nullptr) write_row(z_row, columns, z + at, streams);
          write_row(y_row, columns, result + at, streams);
        }
      };
      const Matrix<T> a{x.as<T>(), in, false};
      if (kind != Activation::none || !products_.compute_rounded(a, groups, out, in, added, result)) {
        products_.compute(a, groups, out, in, result, finish,
                          {touched(z, out), streams ? TouchedMatrix{} : touched(result, out)});
      }
    });
  }

  /// linear_backward_input, with the b of each group instead of w.
  template <class T>
  void backward_input(std::span<const RowGroup<T>> groups, ConstTensorView dy, Activation activation,
                      ConstTensorView pre_activation, TensorView dx) {
    using A = Accumulation<T>;
    const std::int64_t out = dy.shape().back(), in = dx.shape().back();
    const T* z = activation == Activation::none ? nullptr : pre_activation.as<T>();
    T* result = dx.as<T>();
    const bool streams = dx.size_bytes() >= streamed_bytes;
    dispatch_activation(activation, [&]<Activation kind>() {
      const auto finish = [&](const A* tile, std::int64_t stride, std::int64_t i, std::int64_t j, std::int64_t rows,
                              auto columns) {
        A z_buffer[tile_columns], dx_buffer[tile_columns];
        for (std::int64_t r = 0; r < rows; ++r) {
          const std::int64_t at = (i + r) * in + j;
          const A* sums = tile + r * stride;
          if constexpr (kind == Activation::none) {
            write_row(sums, columns, result + at, streams);
          } else {
            const A* z_row = row_in(z + at, columns, z_buffer);
            A* dx_row = row_out(result + at, dx_buffer);
#pragma omp simd
            for (std::int64_t c = 0; c < columns; ++c) dx_row[c] = sums[c] * activation_derivative<kind>(z_row[c]);
            write_row(dx_row, columns, result + at, streams);
          }
        }
      };
      const Matrix<T> a{dy.as<T>(), out, false};
      if (kind != Activation::none || !products_.compute_rounded<T>(a, groups, in, out, nullptr, result)) {
        products_.compute(a, groups, in, out, result, finish,
                          {touched(z, in), streams ? TouchedMatrix{} : touched(result, in)});
      }
    });
  }

  ThreadPool& pool_;
  ScratchPool scratch_;
  TiledProducts products_{pool_, scratch_};
};

}  // namespace

std::unique_ptr<GemmKernels> make_gemm(ThreadPool& pool) { return std::make_unique<CpuGemm>(pool); }

}  // namespace trireme::cpu
