#pragma once

#include <algorithm>
#include <cstdint>

#include "src/backend/cpu/scratch.hpp"
#include "src/base/thread_pool.hpp"

namespace trireme::cpu {

/// sums[j] += what `add_rows(begin, end, partial)` adds to partial[j], over all rows. The rows are divided into at most
/// 64 blocks, depending only on their number, and the blocks' partial sums are added in order: results are bitwise
/// independent of the threads.
template <class A, class AddRows>
void sum_columns(ThreadPool& pool, ScratchPool& scratch, std::int64_t rows, std::int64_t columns, A* sums,
                 AddRows&& add_rows) {
  if (rows == 0 || columns == 0) return;
  const std::int64_t block = std::max<std::int64_t>(32, (rows + 63) / 64);
  const std::int64_t blocks = (rows + block - 1) / block;
  ScratchPool::Lease lease(scratch, static_cast<std::size_t>(blocks * columns) * sizeof(A));
  A* partials = lease.take<A>(blocks * columns);
  pool.parallel_for(blocks, [&](std::int64_t b) {
    std::fill_n(partials + b * columns, columns, A{0});
    add_rows(b * block, std::min(rows, (b + 1) * block), partials + b * columns);
  });
  pool.parallel_ranges(columns, 512, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = 0; b < blocks; ++b) {
      for (std::int64_t j = begin; j < end; ++j) sums[j] += partials[b * columns + j];
    }
  });
}

}  // namespace trireme::cpu
