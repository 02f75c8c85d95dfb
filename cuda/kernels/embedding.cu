#include "src/backend/kernels/embedding.hpp"

#include "cuda/kernels/branch.cuh"
#include "cuda/kernels/families.hpp"
#include "cuda/kernels/sums.cuh"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cuda {
namespace {

// Bytes from and to memory for each element of 16 bits: lookup 4, add_positions and its backward 4; lookup_backward 2,
// and 8 for each element of a row of the table that occurs.

template <class T>
__global__ void __launch_bounds__(block_threads)
    lookup_kernel(std::int64_t n, std::int64_t h, const std::int32_t* ids, const T* table, std::int64_t rows,
                  std::int64_t first_row, T* y) {
  const std::int64_t i = global_thread() / eights_of(h);
  if (i >= n) return;
  const Eight columns = eight(global_thread() % eights_of(h), h);
  const std::int64_t row = ids[i] - first_row;
  T value[8]{};
  if (row >= 0 && row < rows) load_raw(table + row * h + columns.begin, columns.size, value);
  store_raw(value, columns.size, y + i * h + columns.begin);
}

/// A warp for each token and each 256 columns. That of a token's first occurrence adds up all of them, in their order;
/// the others do nothing: no sorting, no atomic additions.
template <class T>
__global__ void __launch_bounds__(block_threads)
    lookup_backward_kernel(std::int64_t n, std::int64_t h, const std::int32_t* ids, const T* dy, std::int64_t rows,
                           std::int64_t first_row, Accumulation<T>* dtable) {
  using A = Accumulation<T>;
  const std::int64_t warp = global_thread() / warp_threads, tiles = column_tiles(h);
  const std::int64_t i = warp / tiles, lane = threadIdx.x % warp_threads;
  if (i >= n) return;
  const std::int32_t id = ids[i];
  if (id < first_row || id >= first_row + rows) return;
  // Four tokens a lane are looked at together: the most frequent ones wait for all numbers of a micro-batch.
  constexpr int parts = 4, scanned = parts * warp_threads;
  struct Found {
    std::uint64_t half[2];  ///< a bit for each token
  };
  const auto tokens_with_id = [&](std::int64_t base) {
    std::int32_t other[parts];
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      const std::int64_t token = base + part * warp_threads + lane;
      other[part] = ids[token < n ? token : i];
    }
    Found found{};
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      const bool in = base + part * warp_threads + lane < n && other[part] == id;
      found.half[part / 2] |= std::uint64_t{__ballot_sync(all_lanes, in)} << part % 2 * warp_threads;
    }
    return found;
  };
  const std::int64_t own = i / scanned * scanned;
  for (std::int64_t base = 0; base < own; base += scanned) {
    const Found found = tokens_with_id(base);
    if ((found.half[0] | found.half[1]) != 0) return;
  }
  Found found = tokens_with_id(own);
  const std::uint64_t before = (std::uint64_t{1} << (i - own) % 64) - 1;
  if (i - own < 64 ? (found.half[0] & before) != 0 : (found.half[0] | (found.half[1] & before)) != 0) return;

  const Eight columns = eight(warp % tiles * tile_groups + lane, h);
  A* to = dtable + (id - first_row) * h + columns.begin;
  constexpr int at_once = sizeof(T) == 2 ? 6 : 3;  // rows on their way: the most frequent tokens have one in twenty
  A total[8];
  load(to, columns.size, total);
  for (std::int64_t base = own;;) {
    for (std::int64_t begin = base; (found.half[0] | found.half[1]) != 0;) {
      PackedEight<T> row[at_once];
#pragma unroll
      for (PackedEight<T>& next : row) {
        if (found.half[0] == 0) {
          found = {found.half[1], 0};
          begin += 64;
          if (found.half[0] == 0) break;
        }
        const std::int64_t token = begin + __ffsll(static_cast<long long>(found.half[0])) - 1;
        found.half[0] &= found.half[0] - 1;
        next.load(dy + token * h + columns.begin, columns.size);
      }
#pragma unroll
      for (const PackedEight<T>& next : row) {
        A value[8];
        next.unpack(value);
        for (int c = 0; c < 8; ++c) total[c] += value[c];
      }
    }
    base += scanned;
    if (base >= n) break;
    found = tokens_with_id(base);
  }
  store(total, columns.size, to);
}

template <class T>
__global__ void __launch_bounds__(block_threads)
    add_positions_kernel(std::int64_t rows, std::int64_t batch, std::int64_t h, const T* table, Positions positions,
                         Dropout dropout, T* x) {
  using A = Accumulation<T>;
  const std::int64_t row = global_thread() / eights_of(h), group = global_thread() % eights_of(h);
  if (row >= rows) return;
  const Eight columns = eight(group, h);
  T* at = x + row * h + columns.begin;
  A value[8], other[8];
  load(at, columns.size, value);
  if (table != nullptr) {
    load(table + positions[row / batch] * h + columns.begin, columns.size, other);
    for (int c = 0; c < 8; ++c) value[c] += other[c];
  }
  if (dropout.enabled()) {
    dropout_factors(dropout, dropout.key, dropout.samples[row % batch], positions[row / batch], group, other);
    for (int c = 0; c < 8; ++c) value[c] *= other[c];
  }
  store(value, columns.size, at);
}

/// A thread for each eight columns of a position, for all samples. dtable may be null.
template <class T>
__global__ void __launch_bounds__(block_threads)
    add_positions_backward_kernel(std::int64_t count, std::int64_t batch, std::int64_t h, const T* dy,
                                  Positions positions, Dropout dropout, T* dx, Accumulation<T>* dtable) {
  using A = Accumulation<T>;
  const std::int64_t p = global_thread() / eights_of(h), group = global_thread() % eights_of(h);
  if (p >= count) return;
  const Eight columns = eight(group, h);
  A total[8]{}, value[8], factor[8];
  A* to = dtable == nullptr ? nullptr : dtable + positions[p] * h + columns.begin;
  if (to != nullptr) load(to, columns.size, total);
  for (std::int64_t sample = 0; sample < batch; ++sample) {
    const std::int64_t offset = (p * batch + sample) * h + columns.begin;
    load(dy + offset, columns.size, value);
    if (dropout.enabled()) {
      dropout_factors(dropout, dropout.key, dropout.samples[sample], positions[p], group, factor);
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
    dispatch_float(table.dtype(), [&]<class T>() {
      const std::int64_t n = ids.numel(), h = table.shape()[1];
      gpu::launch(stream, {"lookup", blocks_for(n * eights_of(h)), block_threads}, lookup_kernel<T>, n, h,
                  ids.as<std::int32_t>(), table.as<T>(), table.shape()[0], first_row, y.as<T>());
    });
  }

  void lookup_backward(Stream& stream, ConstTensorView ids, ConstTensorView dy, std::int64_t first_row,
                       TensorView dtable) override {
    check_lookup_backward(ids, dy, dtable);
    dispatch_float(dy.dtype(), [&]<class T>() {
      const std::int64_t n = ids.numel(), h = dtable.shape()[1];
      gpu::launch(stream, {"lookup_backward", blocks_for(n * column_tiles(h) * warp_threads), block_threads},
                  lookup_backward_kernel<T>, n, h, ids.as<std::int32_t>(), dy.as<T>(), dtable.shape()[0], first_row,
                  dtable.as<Accumulation<T>>());
    });
  }

  void add_positions(Stream& stream, ConstTensorView table, const Positions& positions, const Dropout& dropout,
                     TensorView x) override {
    check_add_positions("add_positions", table, positions, x.dtype(), x);
    if (!table && !dropout.enabled()) return;
    dispatch_float(x.dtype(), [&]<class T>() {
      const std::int64_t batch = x.shape()[1], h = x.shape()[2], rows = x.shape()[0] * batch;
      gpu::launch(stream, {"add_positions", blocks_for(rows * eights_of(h)), block_threads}, add_positions_kernel<T>,
                  rows, batch, h, table ? table.as<T>() : nullptr, positions, dropout, x.as<T>());
    });
  }

  void add_positions_backward(Stream& stream, ConstTensorView dy, const Positions& positions, const Dropout& dropout,
                              TensorView dx, TensorView dtable) override {
    check_add_positions_backward(dy, positions, dx, dtable);
    dispatch_float(dy.dtype(), [&]<class T>() {
      const std::int64_t count = dy.shape()[0], batch = dy.shape()[1], h = dy.shape()[2];
      gpu::launch(stream, {"add_positions_backward", blocks_for(count * eights_of(h)), block_threads},
                  add_positions_backward_kernel<T>, count, batch, h, dy.as<T>(), positions, dropout, dx.as<T>(),
                  dtable ? dtable.as<Accumulation<T>>() : nullptr);
    });
  }
};

}  // namespace

std::unique_ptr<EmbeddingKernels> make_embedding() { return std::make_unique<CudaEmbedding>(); }

}  // namespace trireme::cuda
