#include "src/backend/kernels/norm.hpp"

#include "cuda/kernels/branch.cuh"
#include "cuda/kernels/families.hpp"
#include "cuda/kernels/sums.cuh"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cuda {
namespace {

// Bytes from and to memory for each element of 16 bits: 4 in forward, 8 where it ends a branch, too, and in backward
// with a residual's gradient (6 without).
//
// A warp takes a row. A lane has the same groups of eight columns each time, and keeps them in registers where it has
// no more than `held` of them: then the row is read once. Longer rows, held = 0, are read again, from the caches.
constexpr int warps = block_threads / warp_threads;

__device__ std::int64_t own_row() { return global_thread() / warp_threads; }
__device__ std::int64_t own_lane() { return threadIdx.x % warp_threads; }

/// A lane's part of a row of h columns.
template <class T, int held>
class LaneRow {
 public:
  __device__ LaneRow(const T* row, std::int64_t h) : row_(row), h_(h) {
    if constexpr (held > 0) {
      each([&](const Eight& columns, int i) { kept_[i].load(row + columns.begin, columns.size); });
    }
  }
  /// Of a row that is made here: make(columns, rounded) gives eight columns, 0 beyond the row, and writes them to
  /// memory.
  template <class Make>
  __device__ LaneRow(const T* row, std::int64_t h, Make&& make) : row_(row), h_(h) {
    each([&](const Eight& columns, int i) {
      T rounded[8];
      make(columns, rounded);
      if constexpr (held > 0) kept_[i].pack(rounded);
    });
  }
  /// Calls function(columns, number of the group in this lane).
  template <class Function>
  __device__ void each(Function&& function) const {
    if constexpr (held > 0) {
#pragma unroll
      for (int i = 0; i < held; ++i) {
        const Eight columns = eight(own_lane() + i * warp_threads, h_);
        if (columns.size > 0) function(columns, i);
      }
    } else {
      for (std::int64_t group = own_lane(); group < eights_of(h_); group += warp_threads) function(eight(group, h_), 0);
    }
  }
  /// 0 beyond the row.
  __device__ void get(const Eight& columns, int i, Accumulation<T> (&value)[8]) const {
    if constexpr (held > 0) {
      kept_[i].unpack(value);
    } else {
      load(row_ + columns.begin, columns.size, value);
    }
  }

 private:
  const T* row_;
  std::int64_t h_;
  PackedEight<T> kept_[held > 0 ? held : 1];
};

/// Weight, bias and what is kept for backward; bias and mean are null for RMSNorm.
template <class T>
struct Norm {
  const T* weight;
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
    own.each([&](const Eight& columns, int i) {
      A value[8];
      own.get(columns, i, value);
      for (const A v : value) mean += v;
    });
    mean = warp_sum(mean) / static_cast<A>(h);
  }
  A squares = 0;
  own.each([&](const Eight& columns, int i) {
    A value[8];
    own.get(columns, i, value);
    for (int c = 0; c < 8; ++c) {
      if (c < columns.size) squares += (value[c] - mean) * (value[c] - mean);
    }
  });
  const A reciprocal = 1 / std::sqrt(warp_sum(squares) / static_cast<A>(h) + norm.epsilon);
  own.each([&](const Eight& columns, int i) {
    A value[8], other[8];
    own.get(columns, i, value);
    load(norm.weight + columns.begin, columns.size, other);
    for (int c = 0; c < 8; ++c) value[c] = (value[c] - mean) * reciprocal * other[c];
    if (norm.bias != nullptr) {
      load(norm.bias + columns.begin, columns.size, other);
      for (int c = 0; c < 8; ++c) value[c] += other[c];
    }
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

template <class T, int held>
__global__ void __launch_bounds__(block_threads, 2)
    bias_dropout_add_norm_kernel(std::int64_t rows, std::int64_t h, std::int64_t batch, const T* x, const T* bias,
                                 const T* residual, Dropout dropout, Norm<T> norm, T* sum, T* y) {
  const std::int64_t row = own_row();
  if (row >= rows) return;
  const LaneRow<T, held> own(sum + row * h, h, [&](const Eight& columns, T(&rounded)[8]) {
    end_branch(x, bias, residual, dropout, batch, h, row, columns, rounded);
    store_raw(rounded, columns.size, sum + row * h + columns.begin);
  });
  normalise_row(norm, row, h, own, y + row * h);
}

/// Eight columns of dy, and of x normalised. mean is null for RMSNorm.
template <class T>
__device__ void load_backward(const T* dy, const T* x, const Accumulation<T>* mean,
                              const Accumulation<T>* reciprocal_deviation, std::int64_t row, std::int64_t h,
                              const Eight& columns, Accumulation<T> (&gradient)[8], Accumulation<T> (&normalised)[8]) {
  const std::int64_t offset = row * h + columns.begin;
  load(dy + offset, columns.size, gradient);
  load(x + offset, columns.size, normalised);
  const Accumulation<T> shift = mean == nullptr ? 0 : mean[row], factor = reciprocal_deviation[row];
  for (auto& v : normalised) v = (v - shift) * factor;
}

/// partials [chunks, 2, h], or [chunks, 1, h] for RMSNorm: of dweight and dbias.
template <int sums, class T>
__global__ void __launch_bounds__(block_threads)
    weight_gradient_kernel(RowChunks chunks, std::int64_t h, const T* dy, const T* x, const Accumulation<T>* mean,
                           const Accumulation<T>* reciprocal_deviation, Accumulation<T>* partials) {
  using A = Accumulation<T>;
  sum_rows<sums>(chunks, h, partials, [&](std::int64_t row, std::int64_t group, A(&sum)[sums][8]) {
    A gradient[8], normalised[8];
    load_backward(dy, x, mean, reciprocal_deviation, row, h, eight(group, h), gradient, normalised);
    for (int c = 0; c < 8; ++c) {
      sum[0][c] += gradient[c] * normalised[c];
      sum[sums - 1][c] += sums == 2 ? gradient[c] : A{0};
    }
  });
}

/// dx = residual_gradient + rstd (g - mean of g - normalised x times the mean of their products), g = dy weight.
template <class T>
__global__ void __launch_bounds__(block_threads)
    input_gradient_kernel(std::int64_t rows, std::int64_t h, const T* dy, const T* x, const T* weight,
                          const Accumulation<T>* mean, const Accumulation<T>* reciprocal_deviation,
                          const T* residual_gradient, T* dx) {
  using A = Accumulation<T>;
  const std::int64_t row = own_row();
  if (row >= rows) return;
  // Calls function(columns, gradient, normalised) for the lane's groups of eight.
  const auto each = [&](auto&& function) {
    for (std::int64_t group = own_lane(); group < eights_of(h); group += warp_threads) {
      const Eight columns = eight(group, h);
      A gradient[8], normalised[8], factor[8];
      load_backward(dy, x, mean, reciprocal_deviation, row, h, columns, gradient, normalised);
      load(weight + columns.begin, columns.size, factor);
      for (int c = 0; c < 8; ++c) gradient[c] *= factor[c];
      function(columns, gradient, normalised);
    }
  };
  A sum = 0, dot = 0;
  each([&](const Eight&, A(&gradient)[8], A(&normalised)[8]) {
    for (int c = 0; c < 8; ++c) {
      sum += gradient[c];
      dot += gradient[c] * normalised[c];
    }
  });
  sum = mean == nullptr ? 0 : warp_sum(sum) / static_cast<A>(h);
  dot = warp_sum(dot) / static_cast<A>(h);
  each([&](const Eight& columns, A(&gradient)[8], A(&normalised)[8]) {
    for (int c = 0; c < 8; ++c) gradient[c] = reciprocal_deviation[row] * (gradient[c] - sum - normalised[c] * dot);
    const std::int64_t offset = row * h + columns.begin;
    if (residual_gradient != nullptr) {
      load(residual_gradient + offset, columns.size, normalised);
      for (int c = 0; c < 8; ++c) gradient[c] += normalised[c];
    }
    store(gradient, columns.size, dx + offset);
  });
}

// All of backward in one pass: dy, x and residual_gradient are read once, dx is written once. A block takes a chunk of
// rows, `teams` of them at a time; a team is some of the block's warps, and each of its threads holds up to held_groups
// groups of eight columns, and sums the gradients of their weights.
constexpr int held_groups = 3, widest_held = 8 * held_groups * block_threads;

template <class A>
struct TeamSums {
  A of[2][warps][2];  ///< rows take turns: one barrier a row is enough
};
/// Both sums over the team's threads, for each of them; all threads of the block call it.
template <class A>
__device__ void team_sums(int team, int turn, A& first, A& second) {
  first = warp_sum(first);
  second = warp_sum(second);
  if (team == warp_threads) return;
  auto& parts = gpu::shared<TeamSums<A>>();
  const int warp = threadIdx.x / warp_threads, begin = static_cast<int>(threadIdx.x) / team * team / warp_threads;
  if (threadIdx.x % warp_threads == 0) {
    parts.of[turn][warp][0] = first;
    parts.of[turn][warp][1] = second;
  }
  __syncthreads();
  first = second = 0;
  for (int other = begin; other < begin + team / warp_threads; ++other) {
    first += parts.of[turn][other][0];
    second += parts.of[turn][other][1];
  }
}

/// partials [chunks, sums, h]: of dweight, and of dbias where there are two `sums`. Dynamic shared memory: as much as
/// one chunk's.
template <class T>
__global__ void __launch_bounds__(block_threads, sizeof(T) == 2 ? 2 : 1)
    norm_backward_kernel(RowChunks chunks, int team, int sums, std::int64_t h, const T* dy, const T* x, const T* weight,
                         const Accumulation<T>* mean, const Accumulation<T>* reciprocal_deviation,
                         const T* residual_gradient, T* dx, Accumulation<T>* partials) {
  using A = Accumulation<T>;
  const int own_team = static_cast<int>(threadIdx.x) / team, member = static_cast<int>(threadIdx.x) % team;
  const int teams = block_threads / team;
  // The columns of this thread's group i, none beyond the row.
  const auto columns_of = [&](int i) { return eight(member + i * team, h); };
  A dweight[held_groups][8]{}, dbias[held_groups][8]{};
  int turn = 0;
  for (std::int64_t first = chunks.begin(blockIdx.x); first < chunks.end(blockIdx.x); first += teams, turn = 1 - turn) {
    const std::int64_t row = first + own_team;
    const bool there = row < chunks.end(blockIdx.x);
    const std::int64_t offset = row * h;
    PackedEight<T> own_dy[held_groups], own_x[held_groups];
#pragma unroll
    for (int i = 0; i < held_groups; ++i) {
      const Eight columns = columns_of(i);
      if (!there) continue;
      own_dy[i].load(dy + offset + columns.begin, columns.size);
      own_x[i].load(x + offset + columns.begin, columns.size);
    }
    const A shift = there && mean != nullptr ? mean[row] : 0, reciprocal = there ? reciprocal_deviation[row] : 0;
    A sum = 0, dot = 0;
#pragma unroll
    for (int i = 0; i < held_groups; ++i) {
      A gradient[8], normalised[8], factor[8];
      own_dy[i].unpack(gradient);
      own_x[i].unpack(normalised);
      load(weight + columns_of(i).begin, columns_of(i).size, factor);
      for (int c = 0; c < 8; ++c) {
        normalised[c] = (normalised[c] - shift) * reciprocal;
        dweight[i][c] += gradient[c] * normalised[c];
        dbias[i][c] += gradient[c];
        sum += gradient[c] * factor[c];
        dot += gradient[c] * factor[c] * normalised[c];
      }
    }
    team_sums(team, turn, sum, dot);
    sum = mean == nullptr ? 0 : sum / static_cast<A>(h);
    dot /= static_cast<A>(h);
    if (!there) continue;
#pragma unroll
    for (int i = 0; i < held_groups; ++i) {
      A value[8], normalised[8], factor[8];
      own_dy[i].unpack(value);
      own_x[i].unpack(normalised);
      load(weight + columns_of(i).begin, columns_of(i).size, factor);
      for (int c = 0; c < 8; ++c) {
        value[c] = reciprocal * (value[c] * factor[c] - sum - (normalised[c] - shift) * reciprocal * dot);
      }
      if (residual_gradient != nullptr) {
        load(residual_gradient + offset + columns_of(i).begin, columns_of(i).size, factor);
        for (int c = 0; c < 8; ++c) value[c] += factor[c];
      }
      store(value, columns_of(i).size, dx + offset + columns_of(i).begin);
    }
  }
  // The teams' sums, one team after another.
  A* total = gpu::dynamic_shared<A>();
  for (int turn_of = 0; turn_of < teams; ++turn_of) {
    if (own_team == turn_of) {
#pragma unroll
      for (int i = 0; i < held_groups; ++i) {
        const Eight columns = columns_of(i);
        for (int c = 0; c < 8; ++c) {
          if (c >= columns.size) continue;
          A* place = total + columns.begin + c;
          *place = turn_of == 0 ? dweight[i][c] : *place + dweight[i][c];
          if (sums == 2) place[h] = turn_of == 0 ? dbias[i][c] : place[h] + dbias[i][c];
        }
      }
    }
    __syncthreads();
  }
  for (std::int64_t i = threadIdx.x; i < sums * h; i += block_threads) partials[blockIdx.x * sums * h + i] = total[i];
}

/// Calls `function` with how many groups of eight of a row lanes hold: 4, rows of up to 1024 columns, or 12, up to
/// 3072, where the type has 16 bits.
template <class T, class Function>
void dispatch_held(std::int64_t h, Function&& function) {
  const std::int64_t groups = (eights_of(h) + warp_threads - 1) / warp_threads;
  if (sizeof(T) <= 4 && groups <= 4) return function.template operator() < sizeof(T) <= 4 ? 4 : 0 > ();
  if (sizeof(T) == 2 && groups <= 12) return function.template operator() < sizeof(T) == 2 ? 12 : 0 > ();
  function.template operator()<0>();
}

constexpr std::int64_t row_blocks(std::int64_t rows) { return (rows + warps - 1) / warps; }

class CudaNorm final : public NormKernels {
 public:
  explicit CudaNorm(Scratch scratch) : scratch_(std::move(scratch)) {}

  void normalise(Stream& stream, ConstTensorView x, ConstTensorView weight, ConstTensorView bias, double epsilon,
                 TensorView y, NormStatistics statistics) override {
    check_normalise(x, weight, bias, y, statistics);
    dispatch_float(x.dtype(), [&]<class T>() {
      const std::int64_t h = weight.numel(), rows = rows_of(x.shape());
      if (h == 0) return;
      dispatch_held<T>(h, [&]<int held>() {
        gpu::launch(stream, {"normalise", row_blocks(rows), block_threads}, normalise_kernel<T, held>, rows, h,
                    norm_of<T>(weight, bias, epsilon, statistics), x.as<T>(), y.as<T>());
      });
    });
  }

  void normalise_backward(Stream& stream, ConstTensorView dy, ConstTensorView x, ConstTensorView weight,
                          NormStatistics statistics, ConstTensorView residual_gradient, TensorView dx,
                          TensorView dweight, TensorView dbias) override {
    check_normalise_backward(dy, x, weight, statistics, residual_gradient, dx, dweight, dbias);
    dispatch_float(x.dtype(), [&]<class T>() {
      using A = Accumulation<T>;
      const std::int64_t h = weight.numel(), rows = rows_of(x.shape());
      if (h == 0 || rows == 0) return;
      const A* mean = statistics.mean ? statistics.mean.as<A>() : nullptr;
      const A* rstd = statistics.reciprocal_deviation.as<A>();
      const T* residual = residual_gradient ? residual_gradient.as<T>() : nullptr;
      const int sums = dbias ? 2 : 1;
      constexpr bool can_hold = sizeof(T) <= 4;  // registers
      const bool held = can_hold && h <= widest_held;
      const RowChunks chunks(rows);
      const std::size_t size_bytes = static_cast<std::size_t>(sums * h) * sizeof(A);
      const Buffer scratch = scratch_(stream, static_cast<std::size_t>(chunks.count) * size_bytes);
      A* partials = reinterpret_cast<A*>(scratch.data());
      if (held) {
        if constexpr (can_hold) {
          int team = warp_threads;
          while (std::int64_t{8} * held_groups * team < h) team *= 2;
          gpu::launch(stream, {"norm_backward", chunks.count, block_threads, size_bytes}, norm_backward_kernel<T>,
                      chunks, team, sums, h, dy.as<T>(), x.as<T>(), weight.as<T>(), mean, rstd, residual, dx.as<T>(),
                      partials);
        }
      } else {
        // First the gradients of the weights: dx may lie over dy.
        gpu::launch(stream, {"weight_gradient", chunks.count * column_tiles(h), block_threads},
                    dbias ? weight_gradient_kernel<2, T> : weight_gradient_kernel<1, T>, chunks, h, dy.as<T>(),
                    x.as<T>(), mean, rstd, partials);
        gpu::launch(stream, {"input_gradient", row_blocks(rows), block_threads}, input_gradient_kernel<T>, rows, h,
                    dy.as<T>(), x.as<T>(), weight.as<T>(), mean, rstd, residual, dx.as<T>());
      }
      add_chunks(stream, chunks.count, h, partials, dweight.as<A>(), dbias ? dbias.as<A>() : nullptr);
    });
  }

  void bias_dropout_add_norm(Stream& stream, ConstTensorView x, ConstTensorView bias, ConstTensorView residual,
                             const Dropout& dropout, ConstTensorView weight, ConstTensorView norm_bias, double epsilon,
                             TensorView sum, TensorView y, NormStatistics statistics) override {
    check_bias_dropout_add_norm(x, bias, residual, dropout, weight, norm_bias, sum, y, statistics);
    dispatch_float(x.dtype(), [&]<class T>() {
      const std::int64_t h = weight.numel(), rows = rows_of(x.shape());
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
  static Norm<T> norm_of(ConstTensorView weight, ConstTensorView bias, double epsilon,
                         const NormStatistics& statistics) {
    using A = Accumulation<T>;
    return {weight.as<T>(), bias ? bias.as<T>() : nullptr, static_cast<A>(epsilon),
            statistics.mean ? statistics.mean.as<A>() : nullptr, statistics.reciprocal_deviation.as<A>()};
  }

  Scratch scratch_;
};

}  // namespace

std::unique_ptr<NormKernels> make_norm(Scratch scratch) { return std::make_unique<CudaNorm>(std::move(scratch)); }

}  // namespace trireme::cuda
