#pragma once

#include "cuda/kernels/dropout.cuh"
#include "cuda/kernels/eight.cuh"

namespace trireme::cuda {

/// factor[c] = dropout's scale where column 8 `column_block` + c is kept, else 0.
template <class A>
__device__ void dropout_factors(const Dropout& dropout, std::uint64_t key, std::int64_t sample, std::int64_t row,
                                std::int64_t column_block, A (&factor)[8]) {
  const auto words = dropout_words(key, sample, row, column_block);
  for (int c = 0; c < 8; ++c) {
    const bool keep = Dropout::bits_of_column(words, c) < dropout.keep_threshold;
    factor[c] = keep ? static_cast<A>(dropout.scale) : A{0};
  }
}
/// The same for hidden states [s, b, h], of which `row` counts the rows.
template <class A>
__device__ void row_factors(const Dropout& dropout, std::int64_t row, std::int64_t batch, std::int64_t column_block,
                            A (&factor)[8]) {
  dropout_factors(dropout, dropout.key, dropout.samples[row % batch], dropout.positions[row / batch], column_block,
                  factor);
}

/// The end of a branch: eight columns of residual + dropout(x + bias), rounded; 0 beyond the row. bias may be null.
template <class T>
__device__ void end_branch(const T* x, const T* bias, const T* residual, const Dropout& dropout, std::int64_t batch,
                           std::int64_t h, std::int64_t row, const Eight& columns, T (&rounded)[8]) {
  using A = Accumulation<T>;
  const std::int64_t offset = row * h + columns.begin;
  A value[8], other[8];
  load(x + offset, columns.size, value);
  if (bias != nullptr) {
    load(bias + columns.begin, columns.size, other);
    for (int c = 0; c < 8; ++c) value[c] += other[c];
  }
  if (dropout.enabled()) {
    row_factors(dropout, row, batch, columns.begin / 8, other);
    for (int c = 0; c < 8; ++c) value[c] *= other[c];
  }
  load(residual + offset, columns.size, other);
  for (int c = 0; c < 8; ++c) rounded[c] = gpu::narrow<T>(other[c] + value[c]);
}

}  // namespace trireme::cuda
