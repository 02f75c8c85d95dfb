#pragma once

#include <cblas.h>
#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "src/backend/cpu/bf16_matmul.hpp"
#include "src/backend/cpu/bf16_tiles.hpp"
#include "src/backend/cpu/few_rows.hpp"
#include "src/backend/cpu/products.hpp"
#include "src/backend/cpu/rows.hpp"
#include "src/base/thread_pool.hpp"

namespace trireme::cpu {

/// Checks that `ulimit -v` leaves addresses for the buffers of OpenBLAS, one for each of `threads`: it would try
/// indefinitely to map them. Throws EnvironmentError.
inline void check_blas_buffers(int threads) {
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

/// Products of matrices in tiles that the threads share. A tile is computed by the fastest way for its type and
/// extents; the terms of an element are added in one order, whatever the number of threads.
class TiledProducts {
 public:
  /// Greatest number of columns that `finish` receives.
  static constexpr std::int64_t tile_columns = 512;

  TiledProducts(ThreadPool& pool, ScratchPool& scratch) : pool_(pool), scratch_(scratch) {
    openblas_set_num_threads(1);
    if (Bf16Matmul::available()) bf16_matmul_ = std::make_unique<Bf16Matmul>();
  }

  /// Computes the tiles of a b, of n columns, and hands each to `finish` (tile, its stride, i, j, rows, columns). If T
  /// is its own accumulation type the tile is in `result`, else in scratch memory. `finish` may read or write
  /// `touched`.
  template <class T, class Finish>
  void compute(const Matrix<T>& a, std::span<const RowGroup<T>> groups, std::int64_t n, std::int64_t k, T* result,
               Finish&& finish, const Touched& touched = {}) {
    using A = Accumulation<T>;
    for_each_tile(groups, n, k, [&](const RowGroup<T>& group, std::int64_t i, std::int64_t j, Extents tile) {
      if constexpr (std::is_same_v<T, A>) {
        multiply_tile(a, group.b, i, j, tile.rows, tile.columns, k, false, result + i * n + j, n);
        finish(result + i * n + j, n, i, j, tile.rows, tile.columns);
      } else {
        if constexpr (std::is_same_v<T, bf16>) {
          if (uses_tiles(group.rows, k)) {
            return multiply_by_tiles(
                tile.rows, tile.columns, k, a.block(i, 0), group.b.block(0, j), scratch_,
                {part_of(touched.other, i, j), part_of(touched.result, i, j)}, [&](const ProductBlock& part) {
                  with_columns(part, [&](auto count) {
                    finish(part.sums, part.stride, i + part.row, j + part.column, part.rows, count);
                  });
                });
          }
        }
        ScratchPool::Lease lease(scratch_, static_cast<std::size_t>(tile.rows * tile.columns) * sizeof(A));
        A* sums = lease.take<A>(tile.rows * tile.columns);
        multiply_tile(a, group.b, i, j, tile.rows, tile.columns, k, false, sums, tile.columns);
        finish(sums, tile.columns, i, j, tile.rows, tile.columns);
      }
    });
  }

  /// result = a b + bias if one call per tile can do all that; returns false otherwise.
  template <class T>
  bool compute_rounded(const Matrix<T>& a, std::span<const RowGroup<T>> groups, std::int64_t n, std::int64_t k,
                       const T* bias, T* result) {
    if constexpr (std::is_same_v<T, bf16>) {
      if (bf16_matmul_ == nullptr || has_tiles_ || k == 0) return false;
      for_each_tile(groups, n, k, [&](const RowGroup<T>& group, std::int64_t i, std::int64_t j, Extents tile) {
        const bf16* added = bias == nullptr ? nullptr : bias + j;
        bf16* c = result + i * n + j;
        if (exchanges(tile.rows, group.b) || has_few_rows(tile.rows, group.b)) {
          round_tile(a, group.b, i, j, tile.rows, tile.columns, k, added, c, n);
        } else {
          bf16_matmul_->multiply(tile.rows, tile.columns, k, a.block(i, 0), group.b.block(0, j), added, c, n);
        }
      });
      return true;
    } else {
      return false;
    }
  }

  /// c += a b, or c = a b, over the terms of each group, c [m, n]. Partial sums of split products are added in order.
  /// Groups are computed together as far as the partial sums of one could fill the memory for them.
  template <class T>
  void accumulate(const Matrix<T>& a, const Matrix<T>& b, std::int64_t m, std::int64_t n,
                  std::span<const TermGroup<Accumulation<T>>> groups) {
    using A = Accumulation<T>;
    if (m == 0 || n == 0) return;
    if constexpr (std::is_same_v<T, bf16>) {
      if (uses_tiles(m, 1)) return accumulate_by_tiles(a, b, m, n, groups);
    }
    const bool wide = std::is_same_v<T, bf16> && bf16_matmul_ != nullptr;
    const std::int64_t rows = even_extent(m, tile_rows);
    const std::int64_t columns = even_extent(n, wide ? wide_columns : tile_columns);
    const std::int64_t down = divide_up(m, rows), tiles = down * divide_up(n, columns);
    while (!groups.empty()) {
      ProductTasks tasks;
      std::vector<std::int64_t> partial_sums;  // those of the groups before each
      std::int64_t partials = 0;
      for (const TermGroup<A>& group : groups) {
        // Without terms a result that is overwritten becomes 0, in one task a tile.
        const std::int64_t splits = group.terms == 0 ? (group.sum == ProductSum::add ? 0 : 1)
                                                     : divide_up(group.terms, split_terms(tiles, group.terms));
        const std::int64_t others = std::max<std::int64_t>(splits - 1, 0);  // the first split is added to c directly
        if (partials + others > split_tasks - 1) break;
        tasks.add(tiles * splits);
        partial_sums.push_back(partials);
        partials += others;
      }
      const auto together = groups.first(partial_sums.size());
      partial_sums.push_back(partials);
      ScratchPool::Lease lease(scratch_, static_cast<std::size_t>(partials * m * n) * sizeof(A));
      A* sums = lease.take<A>(partials * m * n);
      pool_.parallel_for(tasks.total(), [&](std::int64_t index) {
        const auto [number, task] = tasks.find(index);
        const TermGroup<A>& group = together[number];
        const std::int64_t depth = group.terms == 0 ? 0 : split_terms(tiles, group.terms), split = task / tiles;
        const std::int64_t i = task % down * rows, j = task / down % (tiles / down) * columns;
        const std::int64_t first = group.first + split * depth;
        multiply_tile(a.block(0, first), b.block(first, 0), i, j, std::min(rows, m - i), std::min(columns, n - j),
                      std::min(depth, group.terms - split * depth), split == 0 && group.sum == ProductSum::add,
                      (split == 0 ? group.c : sums + (partial_sums[number] + split - 1) * m * n) + i * n + j, n);
      });
      for (std::size_t number = 0; number < together.size(); ++number) {
        if (partial_sums[number] == partial_sums[number + 1]) continue;
        A* c = together[number].c;
        pool_.parallel_ranges(m * n, 8192, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t sum = partial_sums[number]; sum < partial_sums[number + 1]; ++sum) {
#pragma omp simd
            for (std::int64_t e = begin; e < end; ++e) c[e] += sums[sum * m * n + e];
          }
        });
      }
      groups = groups.subspan(together.size());
    }
  }

 private:
  /// Greatest number of its rows: the libraries reach full speed on such tiles, and an fp32 tile stays in the L2 cache
  /// for the next operation.
  static constexpr std::int64_t tile_rows = 256;
  /// The same for sums over bf16 rows: both factors are copied to another layout, less often for wide tiles.
  static constexpr std::int64_t wide_columns = 768;
  /// Depth of k per call, for oneDNN, for types that are first converted, and for a transposed first factor: rows of it
  /// that are several pages apart evict each other from the caches while the library copies them.
  static constexpr std::int64_t bf16_depth = 1024, converted_depth = 512, transposed_depth = 256;
  /// Rows of a bf16 product by a weight matrix w^T up to which the library computes its transpose faster. It then reads
  /// w as it lies in memory; otherwise it first copies w to another layout, which pays for many rows only.
  static constexpr std::int64_t max_exchanged_rows = 64;
  /// Minimum number of tasks, if k is long enough to be split between tasks.
  static constexpr std::int64_t split_tasks = 6, split_depth = 256;

  static constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
  /// Returns the extent of blocks that divide `whole` evenly: at most `limit`, a multiple of 32. Several blocks are a
  /// multiple of `together`, if such an extent exists.
  static constexpr std::int64_t even_extent(std::int64_t whole, std::int64_t limit, std::int64_t together = 1) {
    if (whole <= limit) together = 1;
    return whole == 0 ? limit
                      : divide_up(divide_up(whole, divide_up(divide_up(whole, limit), together) * together), 32) * 32;
  }

  struct Extents {
    std::int64_t rows, columns;
  };
  /// The part of a matrix that begins at (i, j).
  static TouchedMatrix part_of(TouchedMatrix matrix, std::int64_t i, std::int64_t j) {
    if (matrix.data != nullptr) {
      matrix.data = static_cast<const std::byte*>(matrix.data) + i * matrix.stride_bytes + j * matrix.element_bytes;
    }
    return matrix;
  }
  /// Extents of the tiles of a product [m, n] for multiply_by_tiles, which copies both factors for each tile, with
  /// which `threads` threads end first.
  static Extents extents_for_tiles(std::int64_t m, std::int64_t n, std::int64_t threads) {
    // The copy of a row, or of a column, takes as long as the products of `copies` sums.
    constexpr std::int64_t most_rows = 1024, most_columns = 768, copies = 100, more = 16;
    const auto part = [](std::int64_t whole, std::int64_t parts) {
      return divide_up(divide_up(whole, parts), 32) * 32;
    };
    Extents best{};
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    const std::int64_t down = divide_up(m, most_rows), across = divide_up(n, most_columns);
    for (std::int64_t i = down; i < down + more; ++i) {
      for (std::int64_t j = across; j < across + more; ++j) {
        const Extents tile{part(m, i), part(n, j)};
        const std::int64_t tiles = divide_up(m, tile.rows) * divide_up(n, tile.columns);
        const std::int64_t cost =
            divide_up(tiles, threads) * (tile.rows * tile.columns + copies * (tile.rows + tile.columns));
        if (cost < least) least = cost, best = tile;
      }
    }
    return best;
  }

  std::int64_t threads_a_group(std::size_t groups) const {
    return divide_up(pool_.threads(), static_cast<std::int64_t>(groups));
  }

  /// Calls task(group, i, j, extents) for all tiles of the groups' rows in a matrix of n columns, sums of k terms.
  template <class T, class Task>
  void for_each_tile(std::span<const RowGroup<T>> groups, std::int64_t n, std::int64_t k, Task&& task) {
    // A product of few rows has few tiles: two threads get the same number.
    const int together = groups.size() == 1 && groups.front().rows <= tile_rows ? 2 : 1;
    const auto extents_of = [&](const RowGroup<T>& group) {
      if (std::is_same_v<T, bf16> && uses_tiles(group.rows, k) && n > 0) {
        return extents_for_tiles(group.rows, n, threads_a_group(groups.size()));
      }
      return Extents{even_extent(group.rows, tile_rows), even_extent(n, tile_columns, together)};
    };
    ProductTasks tasks;
    std::vector<Extents> extents;
    for (const RowGroup<T>& group : groups) {
      extents.push_back(extents_of(group));
      tasks.add(divide_up(group.rows, extents.back().rows) * divide_up(n, extents.back().columns));
    }
    pool_.parallel_for(tasks.total(), [&](std::int64_t index) {
      const auto [number, tile] = tasks.find(index);
      const RowGroup<T>& group = groups[number];
      const auto [rows, columns] = extents[number];
      const std::int64_t down = divide_up(group.rows, rows), i = tile % down * rows, j = tile / down * columns;
      task(group, group.first + i, j, Extents{std::min(rows, group.rows - i), std::min(columns, n - j)});
    });
  }

  /// accumulate, by multiply_by_tiles.
  void accumulate_by_tiles(const Matrix<bf16>& a, const Matrix<bf16>& b, std::int64_t m, std::int64_t n,
                           std::span<const TermGroup<float>> groups) {
    ProductTasks tasks;
    std::vector<Extents> extents;
    for (const TermGroup<float>& group : groups) {
      extents.push_back(extents_for_tiles(m, n, threads_a_group(groups.size())));
      const bool is_idle = group.terms == 0 && group.sum == ProductSum::add;
      tasks.add(is_idle ? 0 : divide_up(m, extents.back().rows) * divide_up(n, extents.back().columns));
    }
    pool_.parallel_for(tasks.total(), [&](std::int64_t index) {
      const auto [number, tile] = tasks.find(index);
      const TermGroup<float>& group = groups[number];
      const auto [rows, columns] = extents[number];
      const std::int64_t down = divide_up(m, rows), i = tile % down * rows, j = tile / down * columns;
      const std::int64_t own_rows = std::min(rows, m - i), own_columns = std::min(columns, n - j);
      float* const c = group.c + i * n + j;
      if (group.terms == 0) {
        for (std::int64_t r = 0; r < own_rows; ++r) std::fill_n(c + r * n, own_columns, 0.0f);
        return;
      }
      multiply_by_tiles(own_rows, own_columns, group.terms, a.block(i, group.first), b.block(group.first, j), scratch_,
                        {{}, group.sum == ProductSum::add ? TouchedMatrix{c, n * 4, 4} : TouchedMatrix{}},
                        [&](const ProductBlock& part) {
                          with_columns(part, [&](auto count) {
                            float* to = c + part.row * n + part.column;
                            for (std::int64_t r = 0; r < part.rows; ++r, to += n) {
                              const float* sums = part.sums + r * part.stride;
                              if (group.sum == ProductSum::add) {
#pragma omp simd
                                for (std::int64_t e = 0; e < count; ++e) to[e] += sums[e];
                              } else {
                                stream_row(sums, count, to);
                              }
                            }
                          });
                        });
    });
  }

  /// c = a b, or c += a b, for the tile of the product at (i, j), stored at c.
  template <class T>
  void multiply_tile(const Matrix<T>& a, const Matrix<T>& b, std::int64_t i, std::int64_t j, std::int64_t rows,
                     std::int64_t columns, std::int64_t k, bool accumulate, Accumulation<T>* c, std::int64_t c_stride) {
    using A = Accumulation<T>;
    if (k == 0) {
      for (std::int64_t r = 0; r < rows && !accumulate; ++r) std::fill_n(c + r * c_stride, columns, A{0});
    } else if (!accumulate && !a.transposed && has_few_rows(rows, b)) {
      ScratchPool::Lease lease(scratch_, static_cast<std::size_t>(rows * k) * sizeof(A));
      few_row_product(rows, columns, k, convert_block(a, i, rows, 0, k, lease.take<A>(rows * k)), b.block(0, j), c,
                      c_stride);
    } else if constexpr (std::is_same_v<T, A>) {
      if (std::is_same_v<A, double>) std::call_once(buffers_checked_, check_blas_buffers, pool_.threads());
      const std::int64_t most = a.transposed ? transposed_depth : k;
      for (std::int64_t begin = 0; begin < k; begin += most) {
        multiply(rows, columns, std::min(most, k - begin), a.block(i, begin), b.block(begin, j),
                 accumulate || begin > 0, c, c_stride);
      }
    } else {
      if constexpr (std::is_same_v<T, bf16>) {
        if (bf16_matmul_ != nullptr) {
          if (!accumulate && exchanges(rows, b)) {
            return exchanged_product(rows, columns, k, a.block(i, 0), b.block(0, j), c, c_stride);
          }
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

  /// Calls task(number of the block's columns), in a type that is constant for all but a last block.
  template <class Task>
  static void with_columns(const ProductBlock& part, Task&& task) {
    if (part.columns == part.extent) return task(std::integral_constant<std::int64_t, ProductBlock::extent>());
    task(part.columns);
  }
  /// Returns whether multiply_by_tiles is the fastest product of `rows` rows and k terms.
  bool uses_tiles(std::int64_t rows, std::int64_t k) const { return has_tiles_ && rows > max_exchanged_rows && k > 0; }
  /// Returns whether few_row_product is the fastest product of `rows` rows by b.
  template <class T>
  bool has_few_rows(std::int64_t rows, const Matrix<T>& b) const {
    const bool exchanges_more = std::is_same_v<T, bf16> && bf16_matmul_ != nullptr;
    return b.transposed && (exchanges_more ? rows < bf16_matmul_->min_exchanged_rows() : rows <= max_few_rows);
  }
  /// Returns whether the transpose of a product of `rows` rows by b is the faster one to compute.
  bool exchanges(std::int64_t rows, const Matrix<bf16>& b) const {
    return b.transposed && rows >= bf16_matmul_->min_exchanged_rows() && rows <= max_exchanged_rows;
  }
  /// c = a b, by c^T = b^T a^T.
  void exchanged_product(std::int64_t rows, std::int64_t columns, std::int64_t k, const Matrix<bf16>& a,
                         const Matrix<bf16>& b, float* c, std::int64_t c_stride) {
    ScratchPool::Lease lease(scratch_, static_cast<std::size_t>(rows * columns) * sizeof(float));
    float* sums = lease.take<float>(rows * columns);
    bf16_matmul_->multiply(columns, rows, k, {b.data, b.stride, !b.transposed}, {a.data, a.stride, !a.transposed},
                           false, sums, rows);
    for (std::int64_t j = 0; j < columns; ++j) {
      for (std::int64_t r = 0; r < rows; ++r) c[r * c_stride + j] = sums[j * rows + r];
    }
  }
  /// c = a b + bias, rounded, of few rows; bias may be null.
  void round_tile(const Matrix<bf16>& a, const Matrix<bf16>& b, std::int64_t i, std::int64_t j, std::int64_t rows,
                  std::int64_t columns, std::int64_t k, const bf16* bias, bf16* c, std::int64_t c_stride) {
    ScratchPool::Lease lease(scratch_, static_cast<std::size_t>(rows * columns) * sizeof(float));
    float* tile = lease.take<float>(rows * columns);
    multiply_tile(a, b, i, j, rows, columns, k, false, tile, columns);
    float added[tile_columns] = {};
    if (bias != nullptr) load_row(bias, columns, added);
    for (std::int64_t r = 0; r < rows; ++r) {
      float* row = tile + r * columns;
#pragma omp simd
      for (std::int64_t column = 0; column < columns; ++column) row[column] += added[column];
      store_row(row, columns, c + r * c_stride);
    }
  }

  /// Terms per task of a product of `tiles` tiles: few tiles split their terms between tasks.
  static std::int64_t split_terms(std::int64_t tiles, std::int64_t terms) {
    const std::int64_t splits = std::min(divide_up(split_tasks, tiles), divide_up(terms, split_depth));
    return divide_up(divide_up(terms, splits), 32) * 32;
  }

  ThreadPool& pool_;
  ScratchPool& scratch_;
  std::once_flag buffers_checked_;
  const bool has_tiles_ = have_bf16_tiles();
  std::unique_ptr<Bf16Matmul> bf16_matmul_;  // null if the machine has no bf16 instructions
};

}  // namespace trireme::cpu
