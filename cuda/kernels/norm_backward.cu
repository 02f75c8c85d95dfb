#include "cuda/kernels/dispatch.cuh"
#include "cuda/kernels/families.hpp"
#include "cuda/kernels/sums.cuh"

#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cuda {
namespace {

// Memory traffic in bytes per 16-bit element: 6, or 8 with a residual's gradient.

/// Eight columns of dy and of x.
template <class T>
struct BackwardVec8 {
  PackedVec8<T> dy, x;

  /// dy, and x normalised; mean is null for RMSNorm.
  __device__ void unpack(const Accumulation<T>* mean, const Accumulation<T>* reciprocal_deviation, std::int64_t row,
                         Accumulation<T> (&gradient)[8], Accumulation<T> (&normalised)[8]) const {
    const Accumulation<T> shift = mean == nullptr ? 0 : mean[row], factor = reciprocal_deviation[row];
    dy.unpack(gradient);
    x.unpack(normalised);
    for (auto& v : normalised) v = (v - shift) * factor;
  }
};
template <class T>
__device__ BackwardVec8<T> load_backward(const T* dy, const T* x, std::int64_t h, std::int64_t row, std::int64_t vec8) {
  return {load_vec8(dy, h, row, vec8), load_vec8(x, h, row, vec8)};
}

/// partials [chunks, 2, h], or [chunks, 1, h] for RMSNorm: of dweight and dbias.
template <int sums, class T>
__global__ void __launch_bounds__(block_threads)
    weight_gradient_kernel(RowChunks chunks, std::int64_t h, const T* dy, const T* x, const Accumulation<T>* mean,
                           const Accumulation<T>* reciprocal_deviation, Accumulation<T>* partials) {
  using A = Accumulation<T>;
  const auto fetch = [&](std::int64_t row, std::int64_t vec8) { return load_backward(dy, x, h, row, vec8); };
  sum_rows<sums>(chunks, h, partials, fetch,
                 [&](const BackwardVec8<T>& own, std::int64_t row, std::int64_t, A(&sum)[sums][8]) {
                   A gradient[8], normalised[8];
                   own.unpack(mean, reciprocal_deviation, row, gradient, normalised);
                   for (int c = 0; c < 8; ++c) {
                     sum[0][c] += gradient[c] * normalised[c];
                     sum[sums - 1][c] += sums == 2 ? gradient[c] : A{0};
                   }
                 });
}

/// dx = residual_gradient + rstd (g - mean of g - normalised x times the mean of their products), g = dy (weight +
/// offset).
template <class T>
__global__ void __launch_bounds__(block_threads)
    input_gradient_kernel(std::int64_t rows, std::int64_t h, const T* dy, const T* x, const T* weight,
                          Accumulation<T> weight_offset, const Accumulation<T>* mean,
                          const Accumulation<T>* reciprocal_deviation, const T* residual_gradient, T* dx) {
  using A = Accumulation<T>;
  const std::int64_t row = own_row();
  if (row >= rows) return;
  // Calls function(columns, gradient, normalised) for the lane's Vec8s.
  const auto each = [&](auto&& function) {
    for (std::int64_t vec8 = own_lane(); vec8 < vec8s_of(h); vec8 += warp_threads) {
      const Vec8 columns = vec8_at(vec8, h);
      A gradient[8], normalised[8], factor[8];
      const BackwardVec8<T> own = load_backward(dy, x, h, row, vec8);
      PackedVec8<T> own_weight;
      own_weight.load(weight + columns.begin, columns.size);
      own.unpack(mean, reciprocal_deviation, row, gradient, normalised);
      own_weight.unpack(factor);
      for (int c = 0; c < 8; ++c) gradient[c] *= factor[c] + weight_offset;
      function(columns, gradient, normalised);
    }
  };
  A sum = 0, dot = 0;
  each([&](const Vec8&, A(&gradient)[8], A(&normalised)[8]) {
    for (int c = 0; c < 8; ++c) {
      sum += gradient[c];
      dot += gradient[c] * normalised[c];
    }
  });
  sum = mean == nullptr ? 0 : warp_sum(sum) / static_cast<A>(h);
  dot = warp_sum(dot) / static_cast<A>(h);
  each([&](const Vec8& columns, A(&gradient)[8], A(&normalised)[8]) {
    for (int c = 0; c < 8; ++c) gradient[c] = reciprocal_deviation[row] * (gradient[c] - sum - normalised[c] * dot);
    const std::int64_t offset = row * h + columns.begin;
    if (residual_gradient != nullptr) {
      load(residual_gradient + offset, columns.size, normalised);
      for (int c = 0; c < 8; ++c) gradient[c] += normalised[c];
    }
    store(gradient, columns.size, dx + offset);
  });
}

// All of backward in one pass: dy, x and residual_gradient are read once, dx is written once. A block processes a chunk
// of rows, `teams` of them at a time. A team is some of the block's warps. Each of its threads holds up to max_vec8s
// Vec8s of columns, and sums the gradients of their weights.
constexpr int max_vec8s = 3, max_held_width = 8 * max_vec8s * block_threads;

template <class A>
struct TeamSums {
  A of[2][warps][2];  ///< double-buffered by row: one barrier per row suffices
};
/// Both sums over the team's threads, for each of them; all threads of the block call it.
template <class A>
__device__ void team_sums(int team, int turn, A& first, A& second) {
  first = warp_sum(first);
  second = warp_sum(second);
  if (team == warp_threads) return;
  auto& warp_sums = gpu::shared<TeamSums<A>>();
  const int warp = threadIdx.x / warp_threads, begin = static_cast<int>(threadIdx.x) / team * team / warp_threads;
  if (threadIdx.x % warp_threads == 0) {
    warp_sums.of[turn][warp][0] = first;
    warp_sums.of[turn][warp][1] = second;
  }
  __syncthreads();
  first = second = 0;
  for (int other = begin; other < begin + team / warp_threads; ++other) {
    first += warp_sums.of[turn][other][0];
    second += warp_sums.of[turn][other][1];
  }
}

/// partials [chunks, sums, h]: of dweight, and of dbias if `sums` is 2. Dynamic shared memory: one chunk's partials.
template <class T>
__global__ void __launch_bounds__(block_threads, sizeof(T) == 2 ? 2 : 1)
    norm_backward_kernel(RowChunks chunks, int team, int sums, std::int64_t h, const T* dy, const T* x, const T* weight,
                         Accumulation<T> weight_offset, const Accumulation<T>* mean,
                         const Accumulation<T>* reciprocal_deviation, const T* residual_gradient, T* dx,
                         Accumulation<T>* partials) {
  using A = Accumulation<T>;
  const int own_team = static_cast<int>(threadIdx.x) / team, member = static_cast<int>(threadIdx.x) % team;
  const int teams = block_threads / team;
  // The columns of this thread's Vec8 i, none beyond the row.
  const auto columns_of = [&](int i) { return vec8_at(member + i * team, h); };
  A dweight[max_vec8s][8]{}, dbias[max_vec8s][8]{};
  PackedVec8<T> own_weight[max_vec8s];
#pragma unroll
  for (int i = 0; i < max_vec8s; ++i) own_weight[i].load(weight + columns_of(i).begin, columns_of(i).size);
  int turn = 0;
  for (std::int64_t first = chunks.begin(blockIdx.x); first < chunks.end(blockIdx.x); first += teams, turn = 1 - turn) {
    const std::int64_t row = first + own_team;
    const bool there = row < chunks.end(blockIdx.x);
    const std::int64_t offset = row * h;
    PackedVec8<T> own_dy[max_vec8s], own_x[max_vec8s];
#pragma unroll
    for (int i = 0; i < max_vec8s; ++i) {
      const Vec8 columns = columns_of(i);
      if (!there) continue;
      own_dy[i].load(dy + offset + columns.begin, columns.size);
      own_x[i].load(x + offset + columns.begin, columns.size);
    }
    const A shift = there && mean != nullptr ? mean[row] : 0, reciprocal = there ? reciprocal_deviation[row] : 0;
    A sum = 0, dot = 0;
#pragma unroll
    for (int i = 0; i < max_vec8s; ++i) {
      A gradient[8], normalised[8], factor[8];
      own_dy[i].unpack(gradient);
      own_x[i].unpack(normalised);
      own_weight[i].unpack(factor);
      for (int c = 0; c < 8; ++c) {
        normalised[c] = (normalised[c] - shift) * reciprocal;
        dweight[i][c] += gradient[c] * normalised[c];
        dbias[i][c] += gradient[c];
        const A weighted = gradient[c] * (factor[c] + weight_offset);
        sum += weighted;
        dot += weighted * normalised[c];
      }
    }
    PackedVec8<T> own_residual[max_vec8s];
    if (there && residual_gradient != nullptr) {
#pragma unroll
      for (int i = 0; i < max_vec8s; ++i) {
        own_residual[i].load(residual_gradient + offset + columns_of(i).begin, columns_of(i).size);
      }
    }
    team_sums(team, turn, sum, dot);
    sum = mean == nullptr ? 0 : sum / static_cast<A>(h);
    dot /= static_cast<A>(h);
    if (!there) continue;
#pragma unroll
    for (int i = 0; i < max_vec8s; ++i) {
      A value[8], normalised[8], factor[8];
      own_dy[i].unpack(value);
      own_x[i].unpack(normalised);
      own_weight[i].unpack(factor);
      for (int c = 0; c < 8; ++c) {
        value[c] =
            reciprocal * (value[c] * (factor[c] + weight_offset) - sum - (normalised[c] - shift) * reciprocal * dot);
      }
      own_residual[i].unpack(factor);
      for (int c = 0; c < 8; ++c) value[c] += factor[c];
      store(value, columns_of(i).size, dx + offset + columns_of(i).begin);
    }
  }
  // The teams' sums, one team after another.
  A* total = gpu::dynamic_shared<A>();
  for (int turn_of = 0; turn_of < teams; ++turn_of) {
    if (own_team == turn_of) {
#pragma unroll
      for (int i = 0; i < max_vec8s; ++i) {
        const Vec8 columns = columns_of(i);
        for (int c = 0; c < 8; ++c) {
          if (c >= columns.size) continue;
          A* address = total + columns.begin + c;
          *address = turn_of == 0 ? dweight[i][c] : *address + dweight[i][c];
          if (sums == 2) address[h] = turn_of == 0 ? dbias[i][c] : address[h] + dbias[i][c];
        }
      }
    }
    __syncthreads();
  }
  for (std::int64_t i = threadIdx.x; i < sums * h; i += block_threads) partials[blockIdx.x * sums * h + i] = total[i];
}

}  // namespace

void norm_backward(Stream& stream, const Scratch& new_scratch, ConstTensorView dy, ConstTensorView x,
                   const NormWeight& weight, const NormStatistics& statistics, ConstTensorView residual_gradient,
                   TensorView dx, TensorView dweight, TensorView dbias) {
  dispatch_gpu(x.dtype(), [&]<class T, class A>() {
    const std::int64_t h = weight.values.numel(), rows = rows_of(x.shape());
    if (h == 0 || rows == 0) return;
    const A* mean = statistics.mean ? statistics.mean.as<A>() : nullptr;
    const A* rstd = statistics.reciprocal_deviation.as<A>();
    const T* residual = residual_gradient ? residual_gradient.as<T>() : nullptr;
    const A weight_offset = static_cast<A>(weight.offset);
    const int sums = dbias ? 2 : 1;
    constexpr bool can_hold = sizeof(T) <= 4;  // registers
    const bool held = can_hold && h <= max_held_width;
    const RowChunks chunks(rows);
    const std::size_t size_bytes = static_cast<std::size_t>(sums * h) * sizeof(A);
    const Buffer scratch = new_scratch(stream, static_cast<std::size_t>(chunks.count) * size_bytes);
    A* partials = reinterpret_cast<A*>(scratch.data());
    if (held) {
      if constexpr (can_hold) {
        int team = warp_threads;
        while (std::int64_t{8} * max_vec8s * team < h) team *= 2;
        gpu::launch(stream, {"norm_backward", chunks.count, block_threads, size_bytes}, norm_backward_kernel<T>, chunks,
                    team, sums, h, dy.as<T>(), x.as<T>(), weight.values.as<T>(), weight_offset, mean, rstd, residual,
                    dx.as<T>(), partials);
      }
    } else {
      // The gradients of the weights come first: dx may overlap dy.
      gpu::launch(stream, {"weight_gradient", chunks.count * column_tiles(h), block_threads},
                  dbias ? weight_gradient_kernel<2, T> : weight_gradient_kernel<1, T>, chunks, h, dy.as<T>(), x.as<T>(),
                  mean, rstd, partials);
      gpu::launch(stream, {"input_gradient", row_blocks(rows), block_threads}, input_gradient_kernel<T>, rows, h,
                  dy.as<T>(), x.as<T>(), weight.values.as<T>(), weight_offset, mean, rstd, residual, dx.as<T>());
    }
    add_chunks(stream, chunks.count, h, partials, dweight.as<A>(), dbias ? dbias.as<A>() : nullptr);
  });
}

}  // namespace trireme::cuda
