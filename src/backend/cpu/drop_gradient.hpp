#pragma once

#include <algorithm>

#include "src/backend/cpu/column_sums.hpp"
#include "src/backend/cpu/dropout_mask.hpp"
#include "src/backend/cpu/rows.hpp"
#include "src/backend/cpu/scratch.hpp"
#include "src/backend/kernels/kernel_call.hpp"

namespace trireme::cpu {

/// ElementwiseKernels::bias_dropout_add_backward of tensors that fit.
inline void drop_gradient(ThreadPool& pool, ScratchPool& scratch, ConstTensorView dsum, const Dropout& dropout,
                          TensorView dx, TensorView dbias) {
  dispatch_float(dsum.dtype(), [&]<class T, class A>() {
    constexpr std::int64_t grain = 16384;  // elements
    const std::int64_t h = dsum.shape().back(), rows = rows_of(dsum.shape());
    if (h == 0) return;
    const T* in = dsum.as<T>();
    T* out = dx.as<T>();
    const auto rows_backward = [&](std::int64_t begin, std::int64_t end, A* partial) {
      if (!dropout.enabled() && in != out) std::copy_n(in + begin * h, (end - begin) * h, out + begin * h);
      if (!dropout.enabled() && partial == nullptr) return;
      ScratchPool::Lease lease(scratch, 3 * (static_cast<std::size_t>(h) * sizeof(A) + 64));
      A *buffer = lease.take<A>(h), *out_buffer = lease.take<A>(h), *factor = lease.take<A>(h);
      for (std::int64_t i = begin; i < end; ++i) {
        const A* row = row_in(in + i * h, h, buffer);
        if (dropout.enabled()) {
          const std::int64_t batch = dsum.shape()[1];
          A* dx_row = row_out(out + i * h, out_buffer);
          dropout_row(dropout, dropout.key, dropout.samples[i % batch], dropout.positions[i / batch], h, factor);
#pragma omp simd
          for (std::int64_t j = 0; j < h; ++j) dx_row[j] = row[j] * factor[j];
          finish_row(dx_row, h, out + i * h);
          row = dx_row;
        }
        if (partial != nullptr) {
#pragma omp simd
          for (std::int64_t j = 0; j < h; ++j) partial[j] += row[j];
        }
      }
    };
    if (dbias) {
      sum_columns(pool, scratch, rows, h, dbias.as<A>(), rows_backward);
    } else if (dropout.enabled() || in != out) {
      pool.parallel_ranges(rows, std::max<std::int64_t>(1, grain / h),
                           [&](std::int64_t begin, std::int64_t end) { rows_backward(begin, end, nullptr); });
    }
  });
}

}  // namespace trireme::cpu
