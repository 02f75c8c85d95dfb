#pragma once

#include "cuda/kernels/dropout.cuh"
#include "cuda/kernels/vec8.cuh"

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
/// By what dropout draws in one row of hidden states [s, b, h]: divisions and an access that its columns share.
struct DropoutRow {
  std::int64_t sample = 0, position = 0;
  __device__ DropoutRow(const Dropout& dropout, std::int64_t row, std::int64_t batch) {
    if (!dropout.enabled()) return;
    sample = dropout.samples[row % batch];
    position = dropout.positions[row / batch];
  }
};

/// The end of a branch: eight columns of residual + dropout(x + bias). Loaded when made, so that two of them can be on
/// their way together.
template <class T>
class BranchEnd {
 public:
  /// bias may be null.
  __device__ BranchEnd(const T* x, const T* bias, const T* residual, std::int64_t h, std::int64_t row,
                       const Vec8& columns)
      : x_(x + row * h + columns.begin, columns.size), residual_(residual + row * h + columns.begin, columns.size) {
    if (bias != nullptr) bias_.load(bias + columns.begin, columns.size);
  }
  /// Rounded; 0 beyond the row.
  __device__ void compute(const Dropout& dropout, const DropoutRow& row, const Vec8& columns, T (&rounded)[8]) const {
    Accumulation<T> factor[8]{}, value[8], other[8];
    // Before the first wait.
    if (dropout.enabled()) dropout_factors(dropout, dropout.key, row.sample, row.position, columns.begin / 8, factor);
    x_.unpack(value);
    bias_.unpack(other);
    for (int c = 0; c < 8; ++c) value[c] += other[c];
    if (dropout.enabled()) {
      for (int c = 0; c < 8; ++c) value[c] *= factor[c];
    }
    residual_.unpack(other);
    for (int c = 0; c < 8; ++c) rounded[c] = gpu::narrow<T>(other[c] + value[c]);
  }

 private:
  PackedVec8<T> x_, residual_, bias_;
};

}  // namespace trireme::cuda
