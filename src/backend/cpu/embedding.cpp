#include "src/backend/kernels/embedding.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "src/backend/cpu/cpu_backend.hpp"
#include "src/backend/cpu/dropout_mask.hpp"
#include "src/backend/cpu/rows.hpp"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cpu {
namespace {

class CpuEmbedding final : public EmbeddingKernels {
 public:
  explicit CpuEmbedding(ThreadPool& pool) : pool_(pool) {}

  void lookup(Stream&, ConstTensorView ids, ConstTensorView table, std::int64_t first_row, TensorView y) override {
    check_lookup(ids, table, y);
    const std::int32_t* id = ids.as<std::int32_t>();
    const std::int64_t rows = table.shape()[0];
    const std::size_t row_bytes = static_cast<std::size_t>(table.shape()[1]) * size_of(table.dtype());
    pool_.parallel_ranges(ids.numel(), 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t row = id[i] - first_row;
        std::byte* to = y.data() + i * static_cast<std::int64_t>(row_bytes);
        if (row >= 0 && row < rows) {
          std::memcpy(to, table.data() + row * static_cast<std::int64_t>(row_bytes), row_bytes);
        } else {
          std::memset(to, 0, row_bytes);
        }
      }
    });
  }

  void lookup_backward(Stream&, ConstTensorView ids, ConstTensorView dy, std::int64_t first_row,
                       TensorView dtable) override {
    check_lookup_backward(ids, dy, dtable);
    dispatch_float(dy.dtype(), [&]<class T, class A>() {
      const std::int32_t* id = ids.as<std::int32_t>();
      const std::int64_t tokens = ids.numel();
      const std::int64_t rows = dtable.shape()[0];
      const std::int64_t h = dtable.shape()[1];
      const T* gradient = dy.as<T>();
      A* table = dtable.as<A>();
      // A task owns some columns of every row and walks all tokens in order: nothing to sort, and the load is balanced
      // for any tokens.
      pool_.parallel_ranges(h, 64, [&](std::int64_t begin, std::int64_t end) {
        A buffer[64];
        for (std::int64_t i = 0; i < tokens; ++i) {
          const std::int64_t row = id[i] - first_row;
          if (row < 0 || row >= rows) continue;
          const A* from = row_in(gradient + i * h + begin, end - begin, buffer);
          A* to = table + row * h + begin;
          for (std::int64_t j = 0; j < end - begin; ++j) to[j] += from[j];
        }
      });
    });
  }

  void add_positions(Stream&, ConstTensorView table, const Positions& positions, const Dropout& dropout,
                     TensorView x) override {
    check_add_positions("add_positions", table, positions, x.dtype(), x);
    if (!table && !dropout.enabled()) return;
    dispatch_float(x.dtype(), [&]<class T, class A>() {
      const std::int64_t batch = x.shape()[1];
      const std::int64_t h = x.shape()[2];
      const T* rows = table ? table.as<T>() : nullptr;
      T* hidden = x.as<T>();
      pool_.parallel_ranges(x.shape()[0], 4, [&](std::int64_t begin, std::int64_t end) {
        std::vector<A> buffer(3 * h);
        A* factor = buffer.data() + 2 * h;
        std::fill_n(factor, h, A{1});
        for (std::int64_t p = begin; p < end; ++p) {
          const A* position = rows == nullptr ? buffer.data() : row_in(rows + positions[p] * h, h, buffer.data());
          for (std::int64_t sample = 0; sample < batch; ++sample) {
            T* out = hidden + (p * batch + sample) * h;
            A* row = row_out(out, buffer.data() + h);
            const A* x_row = row_in(out, h, row);
            if (dropout.enabled()) {
              dropout_row(dropout, dropout.key, dropout.samples[sample], positions[p], h, factor);
            }
#pragma omp simd
            for (std::int64_t j = 0; j < h; ++j) row[j] = (x_row[j] + position[j]) * factor[j];
            finish_row(row, h, out);
          }
        }
      });
    });
  }

  void add_positions_backward(Stream&, ConstTensorView dy, const Positions& positions, const Dropout& dropout,
                              TensorView dx, TensorView dtable) override {
    check_add_positions_backward(dy, positions, dx, dtable);
    dispatch_float(dy.dtype(), [&]<class T, class A>() {
      const std::int64_t batch = dy.shape()[1];
      const std::int64_t h = dy.shape()[2];
      const T* gradient = dy.as<T>();
      T* in_gradient = dx.as<T>();
      A* rows = dtable ? dtable.as<A>() : nullptr;
      pool_.parallel_ranges(dy.shape()[0], 4, [&](std::int64_t begin, std::int64_t end) {
        std::vector<A> buffer(3 * h);
        A* factor = buffer.data() + h;
        std::fill_n(factor, h, A{1});
        for (std::int64_t p = begin; p < end; ++p) {
          A* sum = rows == nullptr ? buffer.data() + 2 * h : rows + positions[p] * h;
          for (std::int64_t sample = 0; sample < batch; ++sample) {
            const std::int64_t offset = (p * batch + sample) * h;
            A* row = row_out(in_gradient + offset, buffer.data());
            const A* dy_row = row_in(gradient + offset, h, buffer.data());
            if (dropout.enabled()) {
              dropout_row(dropout, dropout.key, dropout.samples[sample], positions[p], h, factor);
            }
#pragma omp simd
            for (std::int64_t j = 0; j < h; ++j) {
              row[j] = dy_row[j] * factor[j];
              sum[j] += row[j];
            }
            finish_row(row, h, in_gradient + offset);
          }
        }
      });
    });
  }

 private:
  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<EmbeddingKernels> make_embedding(ThreadPool& pool) { return std::make_unique<CpuEmbedding>(pool); }

}  // namespace trireme::cpu
