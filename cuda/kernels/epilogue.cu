#include "cuda/kernels/epilogue.hpp"

#include "cuda/kernels/activation.cuh"
#include "cuda/kernels/dispatch.cuh"
#include "cuda/kernels/sums.cuh"

namespace trireme::cuda {
namespace {

/// One thread per eight columns of a row.
template <class T>
__global__ void __launch_bounds__(block_threads)
    bias_activation_kernel(std::int64_t rows, std::int64_t columns, const T* bias, Activation activation, T* z,
                           bool keep, T* y) {
  const std::int64_t row = global_thread() / vec8s_of(columns);
  if (row >= rows) return;
  const Vec8 range = vec8_at(global_thread() % vec8s_of(columns), columns);
  const std::int64_t offset = row * columns + range.begin;
  PackedVec8<T> own(z + offset, range.size), other;
  if (bias != nullptr) other.load(bias + range.begin, range.size);
  float value[8], added[8];
  own.unpack(value);
  other.unpack(added);
  for (int c = 0; c < 8; ++c) value[c] += added[c];
  if (keep) store(value, range.size, z + offset);
  for (float& v : value) v = activated(activation, v);
  store(value, range.size, y + offset);
}

template <class T>
__global__ void __launch_bounds__(block_threads)
    column_sums_kernel(RowChunks chunks, std::int64_t columns, const T* x, float* partials) {
  const auto fetch = [&](std::int64_t row, std::int64_t vec8) { return load_vec8(x, columns, row, vec8); };
  sum_rows<1>(chunks, columns, partials, fetch,
              [&](const PackedVec8<T>& own, std::int64_t, std::int64_t, float(&sum)[1][8]) {
                float value[8];
                own.unpack(value);
                for (int c = 0; c < 8; ++c) sum[0][c] += value[c];
              });
}

}  // namespace

void bias_activation(Stream& stream, DType dtype, std::int64_t rows, std::int64_t columns, const void* bias,
                     Activation activation, void* z, bool keep, void* y) {
  dispatch_gpu<false>(dtype, [&]<class T>() {
    gpu::launch(stream, {"bias_activation", blocks_for(rows * vec8s_of(columns)), block_threads},
                bias_activation_kernel<T>, rows, columns, static_cast<const T*>(bias), activation, static_cast<T*>(z),
                keep, static_cast<T*>(y));
  });
}

void activation_backward(Stream& stream, DType dtype, std::int64_t numel, Activation activation, const void* z,
                         void* dx) {
  dispatch_gpu<false>(dtype, [&]<class T>() {
    gpu::launch(stream, {"activation_backward", blocks_for(vec8s_of(numel)), block_threads},
                activate_backward_kernel<T>, numel, activation, static_cast<const T*>(dx), static_cast<const T*>(z),
                static_cast<T*>(dx));
  });
}

std::size_t column_sums_bytes(std::int64_t rows, std::int64_t columns) {
  return rows == 0 ? 0 : static_cast<std::size_t>(RowChunks(rows).count * columns) * sizeof(float);
}

void column_sums(Stream& stream, DType dtype, std::int64_t rows, std::int64_t columns, const void* x, void* scratch,
                 float* sums) {
  if (rows == 0 || columns == 0) return;
  const RowChunks chunks(rows);
  auto* partials = static_cast<float*>(scratch);
  dispatch_gpu<false>(dtype, [&]<class T>() {
    gpu::launch(stream, {"column_sums", chunks.count * column_tiles(columns), block_threads}, column_sums_kernel<T>,
                chunks, columns, static_cast<const T*>(x), partials);
  });
  add_chunks(stream, chunks.count, columns, partials, sums);
}

void add_rows(Stream& stream, std::int64_t rows, std::int64_t n, const float* x, float* y) {
  add_chunks(stream, rows, n, x, y);
}

}  // namespace trireme::cuda
