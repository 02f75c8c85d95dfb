#include "src/backend/kernels/embedding.hpp"

#include <algorithm>
#include <bit>

#include "cuda/kernels/dispatch.cuh"
#include "cuda/kernels/dropout.cuh"
#include "cuda/kernels/families.hpp"
#include "cuda/kernels/sums.cuh"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cuda {
namespace {

// Memory traffic in bytes per 16-bit element: lookup 4, add_positions and its backward 4; lookup_backward 2, and 8 per
// element of each table row that occurs, in every window.

template <class T>
__global__ void __launch_bounds__(block_threads)
    lookup_kernel(std::int64_t n, std::int64_t h, const std::int32_t* ids, const T* table, std::int64_t rows,
                  std::int64_t first_row, T* y) {
  const std::int64_t i = global_thread() / vec8s_of(h);
  if (i >= n) return;
  const Vec8 columns = vec8_at(global_thread() % vec8s_of(h), h);
  const std::int64_t row = ids[i] - first_row;
  T value[8]{};
  if (row >= 0 && row < rows) load_raw(table + row * h + columns.begin, columns.size, value);
  store_raw(value, columns.size, y + i * h + columns.begin);
}

/// Tokens that a block of lookup_backward processes together, and their number per lane.
constexpr int window = 4096, window_rounds = window / block_threads;

/// Tokens of a window whose rows belong to the block, in their order.
struct FoundTokens {
  std::int32_t id[window];
  std::uint32_t token[window];  ///< position in the window
  int of_warp[warps];
};

/// Gathers the tokens from `base` on and returns their number; all threads call it. `rows` from `first_row` on are
/// distributed cyclically to the blocks, a power of two: the most frequent tokens are neighbours.
__device__ inline int find_tokens(const std::int32_t* ids, std::int64_t base, std::int64_t n, std::int64_t rows,
                                  std::int64_t first_row, FoundTokens& tokens) {
  const int warp = threadIdx.x / warp_threads, lane = threadIdx.x % warp_threads;
  const std::int64_t begin = base + warp * window_rounds * warp_threads;
  std::int32_t id[window_rounds];
#pragma unroll
  for (int round = 0; round < window_rounds; ++round) {
    const std::int64_t token = begin + round * warp_threads + lane;
    if (token < n) id[round] = ids[token];
  }
  unsigned found[window_rounds]{};
  int count = 0;
#pragma unroll
  for (int round = 0; round < window_rounds; ++round) {
    if (begin + round * warp_threads >= n) break;
    const unsigned row = static_cast<unsigned>(id[round]) - static_cast<unsigned>(first_row);
    const bool own = begin + round * warp_threads + lane < n && row < static_cast<unsigned>(rows) &&
                     (row & (gridDim.x - 1)) == blockIdx.x;
    found[round] = __ballot_sync(all_lanes, own);
    count += __popc(found[round]);
  }
  if (lane == 0) tokens.of_warp[warp] = count;
  __syncthreads();
  int index = 0, all = 0;
  for (int other = 0; other < warps; ++other) {
    if (other < warp) index += tokens.of_warp[other];
    all += tokens.of_warp[other];
  }
#pragma unroll
  for (int round = 0; round < window_rounds; ++round) {
    if ((found[round] >> lane & 1U) != 0) {
      const int own = index + __popc(found[round] & ((1U << lane) - 1));
      tokens.id[own] = id[round];
      tokens.token[own] = static_cast<std::uint32_t>(begin - base) + round * warp_threads + lane;
    }
    index += __popc(found[round]);
  }
  __syncthreads();
  return all;
}

/// A block owns some table rows, and reads all tokens, window by window. A warp sums all tokens of one id with such a
/// row, in order, for 256 columns: no sorting, no atomics, and every block reads every id once.
template <class T>
__global__ void __launch_bounds__(block_threads, 2)
    lookup_backward_kernel(std::int64_t n, std::int64_t h, const std::int32_t* ids, const T* dy, std::int64_t rows,
                           std::int64_t first_row, Accumulation<T>* dtable) {
  using A = Accumulation<T>;
  constexpr int at_once = 32 / sizeof(T);  // rows in flight: the most frequent token is one in twenty
  auto& tokens = gpu::shared<FoundTokens>();
  const int warp = threadIdx.x / warp_threads, lane = threadIdx.x % warp_threads;
  const int tiles = static_cast<int>(column_tiles(h));
  for (std::int64_t base = 0; base < n; base += window) {
    const int count = find_tokens(ids, base, n, rows, first_row, tokens);
    for (int item = warp; item < count * tiles; item += warps) {
      // The first token of an id processes all of them.
      const int first = item / tiles;
      const std::int32_t id = tokens.id[first];
      const auto with_id = [&](int begin) {
        return __ballot_sync(all_lanes, begin + lane < count && tokens.id[begin + lane] == id);
      };
      int begin = 0;
      unsigned found = with_id(begin);
      while (found == 0) found = with_id(begin += warp_threads);
      if (begin + __ffs(static_cast<int>(found)) - 1 != first) continue;

      const Vec8 columns = vec8_at(item % tiles * tile_vec8s + lane, h);
      const T* from = dy + base * h + columns.begin;
      A* to = dtable + (id - first_row) * h + columns.begin;
      A total[8];
      load(to, columns.size, total);
      for (;;) {
        while (found != 0) {
          const int left = __popc(found);
          std::uint32_t token[at_once];  // undefined from `left` on
#pragma unroll
          for (std::uint32_t& next : token) {
            next = tokens.token[begin + ((__ffs(static_cast<int>(found)) - 1) & (warp_threads - 1))];
            found &= found - 1;
          }
          PackedVec8<T> row[at_once];
#pragma unroll
          for (int i = 0; i < at_once; ++i) {
            if (i == left) break;
            row[i].load(from + gpu::wide_product(token[i], static_cast<std::uint32_t>(h)), columns.size);
          }
#pragma unroll
          for (int i = 0; i < at_once; ++i) {
            if (i == left) break;
            A value[8];
            row[i].unpack(value);
            for (int c = 0; c < 8; ++c) total[c] += value[c];
          }
        }
        begin += warp_threads;
        if (begin >= count) break;
        found = with_id(begin);
      }
      store(total, columns.size, to);
    }
    __syncthreads();
  }
}

template <class T>
__global__ void __launch_bounds__(block_threads)
    add_positions_kernel(std::int64_t rows, std::int64_t batch, std::int64_t h, const T* table, Positions positions,
                         Dropout dropout, T* x) {
  using A = Accumulation<T>;
  const std::int64_t row = global_thread() / vec8s_of(h), vec8 = global_thread() % vec8s_of(h);
  if (row >= rows) return;
  const Vec8 columns = vec8_at(vec8, h);
  T* at = x + row * h + columns.begin;
  A value[8], other[8];
  load(at, columns.size, value);
  if (table != nullptr) {
    load(table + positions[row / batch] * h + columns.begin, columns.size, other);
    for (int c = 0; c < 8; ++c) value[c] += other[c];
  }
  if (dropout.enabled()) {
    dropout_factors(dropout, dropout.key, dropout.samples[row % batch], positions[row / batch], vec8, other);
    for (int c = 0; c < 8; ++c) value[c] *= other[c];
  }
  store(value, columns.size, at);
}

/// One thread per eight columns of a position, for all samples. dtable may be null.
template <class T>
__global__ void __launch_bounds__(block_threads)
    add_positions_backward_kernel(std::int64_t count, std::int64_t batch, std::int64_t h, const T* dy,
                                  Positions positions, Dropout dropout, T* dx, Accumulation<T>* dtable) {
  using A = Accumulation<T>;
  const std::int64_t p = global_thread() / vec8s_of(h), vec8 = global_thread() % vec8s_of(h);
  if (p >= count) return;
  const Vec8 columns = vec8_at(vec8, h);
  A total[8]{}, value[8], factor[8];
  A* to = dtable == nullptr ? nullptr : dtable + positions[p] * h + columns.begin;
  if (to != nullptr) load(to, columns.size, total);
  for (std::int64_t sample = 0; sample < batch; ++sample) {
    const std::int64_t offset = (p * batch + sample) * h + columns.begin;
    load(dy + offset, columns.size, value);
    if (dropout.enabled()) {
      dropout_factors(dropout, dropout.key, dropout.samples[sample], positions[p], vec8, factor);
      for (int c = 0; c < 8; ++c) value[c] *= factor[c];
    }
    for (int c = 0; c < 8; ++c) total[c] += value[c];
    store(value, columns.size, dx + offset);
  }
  if (to != nullptr) store(total, columns.size, to);
}

class CudaEmbedding final : public EmbeddingKernels {
 public:
  void lookup(Stream& stream, ConstTensorView ids, ConstTensorView table, std::int64_t first_row,
              TensorView y) override {
    check_lookup(ids, table, y);
    dispatch_gpu(table.dtype(), [&]<class T>() {
      const std::int64_t n = ids.numel(), h = table.shape()[1];
      gpu::launch(stream, {"lookup", blocks_for(n * vec8s_of(h)), block_threads}, lookup_kernel<T>, n, h,
                  ids.as<std::int32_t>(), table.as<T>(), table.shape()[0], first_row, y.as<T>());
    });
  }

  void lookup_backward(Stream& stream, ConstTensorView ids, ConstTensorView dy, std::int64_t first_row,
                       TensorView dtable) override {
    check_lookup_backward(ids, dy, dtable);
    dispatch_gpu(dy.dtype(), [&]<class T>() {
      const std::int64_t n = ids.numel(), h = dtable.shape()[1];
      if (n == 0) return;
      // Every block reads all ids: more blocks would cost more than they save.
      const auto blocks = static_cast<std::int64_t>(
          std::bit_ceil(static_cast<std::uint64_t>(std::min<std::int64_t>((n + 31) / 32, 256))));
      gpu::launch(stream, {"lookup_backward", blocks, block_threads}, lookup_backward_kernel<T>, n, h,
                  ids.as<std::int32_t>(), dy.as<T>(), dtable.shape()[0], first_row, dtable.as<Accumulation<T>>());
    });
  }

  void add_positions(Stream& stream, ConstTensorView table, const Positions& positions, const Dropout& dropout,
                     TensorView x) override {
    check_add_positions("add_positions", table, positions, x.dtype(), x);
    if (!table && !dropout.enabled()) return;
    dispatch_gpu(x.dtype(), [&]<class T>() {
      const std::int64_t batch = x.shape()[1], h = x.shape()[2], rows = x.shape()[0] * batch;
      gpu::launch(stream, {"add_positions", blocks_for(rows * vec8s_of(h)), block_threads}, add_positions_kernel<T>,
                  rows, batch, h, table ? table.as<T>() : nullptr, positions, dropout, x.as<T>());
    });
  }

  void add_positions_backward(Stream& stream, ConstTensorView dy, const Positions& positions, const Dropout& dropout,
                              TensorView dx, TensorView dtable) override {
    check_add_positions_backward(dy, positions, dx, dtable);
    dispatch_gpu(dy.dtype(), [&]<class T>() {
      const std::int64_t count = dy.shape()[0], batch = dy.shape()[1], h = dy.shape()[2];
      gpu::launch(stream, {"add_positions_backward", blocks_for(count * vec8s_of(h)), block_threads},
                  add_positions_backward_kernel<T>, count, batch, h, dy.as<T>(), positions, dropout, dx.as<T>(),
                  dtable ? dtable.as<Accumulation<T>>() : nullptr);
    });
  }
};

}  // namespace

std::unique_ptr<EmbeddingKernels> make_embedding() { return std::make_unique<CudaEmbedding>(); }

}  // namespace trireme::cuda
