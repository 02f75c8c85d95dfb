#include "src/backend/kernels/norm.hpp"

#include "cuda/kernels/dispatch.cuh"
#include "cuda/kernels/dropout.cuh"
#include "cuda/kernels/families.hpp"
#include "cuda/kernels/sums.cuh"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cuda {
namespace {

// Memory traffic in bytes per 16-bit element: 4, or 8 if it also ends a branch. One warp per row. A lane processes the
// same Vec8s of columns in every row. It keeps at most `held` of them in registers; if that is all, the row is read
// once. Longer rows, held = 0, are read again, from the caches.

/// Columns of a row of h that one lane processes.
template <class T, int held>
class LaneRow {
 public:
  __device__ LaneRow(const T* row, std::int64_t h) : row_(row), h_(h) {
    if constexpr (held > 0) {
      each([&](const Vec8& columns, int i) { kept_[i].load(row + columns.begin, columns.size); });
    }
  }
  /// Processes a row: make(fetch(columns), columns, rounded) returns eight columns, 0 beyond the row, and writes them
  /// to memory. Two Vec8s are fetched together unless a third block needs the registers.
  template <class Fetch, class Make>
  __device__ LaneRow(const T* row, std::int64_t h, const Fetch& fetch, const Make& make) : row_(row), h_(h) {
    T rounded[8];
    if constexpr (held == 4 || held == 12) {
#pragma unroll
      for (int i = 0; i < held; i += 2) {
        const Vec8 first = vec8(i), second = vec8(i + 1);
        if (first.size <= 0) break;
        const auto of_first = fetch(first), of_second = fetch(second);
        make(of_first, first, rounded);
        kept_[i].pack(rounded);
        if (second.size <= 0) break;
        make(of_second, second, rounded);
        kept_[i + 1].pack(rounded);
      }
    } else {
      each([&](const Vec8& columns, int i) {
        make(fetch(columns), columns, rounded);
        if constexpr (held > 0) kept_[i].pack(rounded);
      });
    }
  }
  /// Calls function(columns, index of the Vec8 in this lane).
  template <class Function>
  __device__ void each(Function&& function) const {
    if constexpr (held > 0) {
#pragma unroll
      for (int i = 0; i < held; ++i) {
        const Vec8 columns = vec8(i);
        if (columns.size > 0) function(columns, i);
      }
    } else {
      for (std::int64_t vec8 = own_lane(); vec8 < vec8s_of(h_); vec8 += warp_threads) function(vec8_at(vec8, h_), 0);
    }
  }
  /// 0 beyond the row.
  __device__ void get(const Vec8& columns, int i, Accumulation<T> (&value)[8]) const {
    if constexpr (held > 0) {
      kept_[i].unpack(value);
    } else {
      load(row_ + columns.begin, columns.size, value);
    }
  }

 private:
  __device__ Vec8 vec8(int i) const { return vec8_at(own_lane() + i * warp_threads, h_); }

  const T* row_;
  std::int64_t h_;
  PackedVec8<T> kept_[held > 0 ? held : 1];
};

/// Weight, bias and the statistics for backward; bias and mean are null for RMSNorm.
template <class T>
struct Norm {
  const T* weight;
  Accumulation<T> offset;  ///< added to the weights
  const T* bias;
  Accumulation<T> epsilon;
  Accumulation<T>* mean;
  Accumulation<T>* reciprocal_deviation;
};

/// y = the row `own` normalised; all lanes of the row's warp call it.
template <class T, int held>
__device__ void normalise_row(const Norm<T>& norm, std::int64_t row, std::int64_t h, const LaneRow<T, held>& own,
                              T* y) {
  using A = Accumulation<T>;
  A mean = 0;
  if (norm.mean != nullptr) {
    own.each([&](const Vec8& columns, int i) {
      A value[8];
      own.get(columns, i, value);
      for (const A v : value) mean += v;
    });
    mean = warp_sum(mean) / static_cast<A>(h);
  }
  A squares = 0;
  own.each([&](const Vec8& columns, int i) {
    A value[8];
    own.get(columns, i, value);
    for (int c = 0; c < 8; ++c) {
      if (c < columns.size) squares += (value[c] - mean) * (value[c] - mean);
    }
  });
  const A reciprocal = 1 / std::sqrt(warp_sum(squares) / static_cast<A>(h) + norm.epsilon);
  own.each([&](const Vec8& columns, int i) {
    A value[8], other[8];
    own.get(columns, i, value);
    PackedVec8<T> weight, bias;
    weight.load(norm.weight + columns.begin, columns.size);
    if (norm.bias != nullptr) bias.load(norm.bias + columns.begin, columns.size);
    weight.unpack(other);
    for (int c = 0; c < 8; ++c) value[c] = (value[c] - mean) * reciprocal * (other[c] + norm.offset);
    bias.unpack(other);
    for (int c = 0; c < 8; ++c) value[c] += other[c];
    store(value, columns.size, y + columns.begin);
  });
  if (own_lane() != 0) return;
  if (norm.mean != nullptr) norm.mean[row] = mean;
  norm.reciprocal_deviation[row] = reciprocal;
}

template <class T, int held>
__global__ void __launch_bounds__(block_threads, 2)
    normalise_kernel(std::int64_t rows, std::int64_t h, Norm<T> norm, const T* x, T* y) {
  const std::int64_t row = own_row();
  if (row < rows) normalise_row(norm, row, h, LaneRow<T, held>(x + row * h, h), y + row * h);
}

/// Occupancy of bias_dropout_add_norm in blocks per multiprocessor.
template <class T, int held>
constexpr int blocks_at_once = held == 6                     ? 3
                               : held == 0 && sizeof(T) == 2 ? 5
                                                             : 2;

template <class T, int held>
__global__ void __launch_bounds__(block_threads, blocks_at_once<T, held>)
    bias_dropout_add_norm_kernel(std::int64_t rows, std::int64_t h, std::int64_t batch, const T* x, const T* bias,
                                 const T* residual, Dropout dropout, Norm<T> norm, T* sum, T* y) {
  const std::int64_t row = own_row();
  if (row >= rows) return;
  const DropoutRow dropout_row(dropout, row, batch);
  const auto fetch = [&](const Vec8& columns) { return BranchEnd<T>(x, bias, residual, h, row, columns); };
  const LaneRow<T, held> own(sum + row * h, h, fetch,
                             [&](const BranchEnd<T>& end, const Vec8& columns, T(&rounded)[8]) {
                               end.compute(dropout, dropout_row, columns, rounded);
                               store_raw(rounded, columns.size, sum + row * h + columns.begin);
                             });
  normalise_row(norm, row, h, own, y + row * h);
}

/// Calls `function` with the number of Vec8s of a row that a lane holds: 4, rows of up to 1024 columns, or 6 or 12, up
/// to 1536 or 3072, for 16-bit types.
template <class T, class Function>
void dispatch_held(std::int64_t h, Function&& function) {
  const std::int64_t vec8s = (vec8s_of(h) + warp_threads - 1) / warp_threads;
  if (sizeof(T) <= 4 && vec8s <= 4) return function.template operator() < sizeof(T) <= 4 ? 4 : 0 > ();
  if (sizeof(T) == 2 && vec8s <= 6) return function.template operator() < sizeof(T) == 2 ? 6 : 0 > ();
  if (sizeof(T) == 2 && vec8s <= 12) return function.template operator() < sizeof(T) == 2 ? 12 : 0 > ();
  function.template operator()<0>();
}

class CudaNorm final : public NormKernels {
 public:
  explicit CudaNorm(Scratch scratch) : scratch_(std::move(scratch)) {}

  void normalise(Stream& stream, ConstTensorView x, const NormWeight& weight, ConstTensorView bias, double epsilon,
                 TensorView y, NormStatistics statistics) override {
    check_normalise(x, weight.values, bias, y, statistics);
    dispatch_gpu(x.dtype(), [&]<class T>() {
      const std::int64_t h = weight.values.numel(), rows = rows_of(x.shape());
      if (h == 0) return;
      dispatch_held<T>(h, [&]<int held>() {
        gpu::launch(stream, {"normalise", row_blocks(rows), block_threads}, normalise_kernel<T, held>, rows, h,
                    norm_of<T>(weight, bias, epsilon, statistics), x.as<T>(), y.as<T>());
      });
    });
  }

  void normalise_backward(Stream& stream, ConstTensorView dy, ConstTensorView x, const NormWeight& weight,
                          NormStatistics statistics, ConstTensorView residual_gradient, TensorView dx,
                          TensorView dweight, TensorView dbias) override {
    check_normalise_backward(dy, x, weight.values, statistics, residual_gradient, dx, dweight, dbias);
    norm_backward(stream, scratch_, dy, x, weight, statistics, residual_gradient, dx, dweight, dbias);
  }

  void bias_dropout_add_norm(Stream& stream, ConstTensorView x, ConstTensorView bias, ConstTensorView residual,
                             const Dropout& dropout, const NormWeight& weight, ConstTensorView norm_bias,
                             double epsilon, TensorView sum, TensorView y, NormStatistics statistics) override {
    check_bias_dropout_add_norm(x, bias, residual, dropout, weight.values, norm_bias, sum, y, statistics);
    dispatch_gpu(x.dtype(), [&]<class T>() {
      const std::int64_t h = weight.values.numel(), rows = rows_of(x.shape());
      if (h == 0) return;
      dispatch_held<T>(h, [&]<int held>() {
        gpu::launch(stream, {"bias_dropout_add_norm", row_blocks(rows), block_threads},
                    bias_dropout_add_norm_kernel<T, held>, rows, h, x.shape().rank() == 3 ? x.shape()[1] : 1, x.as<T>(),
                    bias ? bias.as<T>() : nullptr, residual.as<T>(), dropout,
                    norm_of<T>(weight, norm_bias, epsilon, statistics), sum.as<T>(), y.as<T>());
      });
    });
  }

 private:
  template <class T>
  static Norm<T> norm_of(const NormWeight& weight, ConstTensorView bias, double epsilon,
                         const NormStatistics& statistics) {
    using A = Accumulation<T>;
    return {weight.values.as<T>(),
            static_cast<A>(weight.offset),
            bias ? bias.as<T>() : nullptr,
            static_cast<A>(epsilon),
            statistics.mean ? statistics.mean.as<A>() : nullptr,
            statistics.reciprocal_deviation.as<A>()};
  }

  Scratch scratch_;
};

}  // namespace

std::unique_ptr<NormKernels> make_norm(Scratch scratch) { return std::make_unique<CudaNorm>(std::move(scratch)); }

}  // namespace trireme::cuda
