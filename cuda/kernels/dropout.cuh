#pragma once

#include "cuda/kernels/vec8.cuh"
#include "src/backend/kernels/dropout.hpp"

namespace trireme::cuda {

/// Dropout::words, optimised for GPUs.
__device__ inline std::array<std::uint32_t, 4> dropout_words(std::uint64_t key, std::int64_t sample, std::int64_t row,
                                                             std::int64_t column_block) {
  return Dropout::words(key, sample, row, column_block,
                        [](std::uint32_t a, std::uint32_t b) { return gpu::wide_product(a, b); });
}

/// Evaluates dropout for two columns at once.
class PackedThreshold {
 public:
  __device__ explicit PackedThreshold(std::uint32_t keep_threshold)
      : rest_((0x8000U - (keep_threshold & 0x7fffU)) * 0x10001U), high_((keep_threshold & 0x8000U) == 0 ? ~0U : 0) {}
  /// Sets bits 15 and 31 if the lower and the upper half of `word` are below the threshold.
  __device__ std::uint32_t below(std::uint32_t word) const {
    const std::uint32_t sum = (word & 0x7fff7fffU) + rest_;  // bits 15 and 31: the lower 15 bits are not below
    return ~((word & sum) | (word & high_) | (sum & high_));
  }

 private:
  std::uint32_t rest_, high_;
};

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
/// Inputs of dropout's draws in one row of hidden states [s, b, h]: divisions and an access shared by its columns.
struct DropoutRow {
  std::int64_t sample = 0, position = 0;
  __device__ DropoutRow(const Dropout& dropout, std::int64_t row, std::int64_t batch) {
    if (!dropout.enabled()) return;
    sample = dropout.samples[row % batch];
    position = dropout.positions[row / batch];
  }
};

/// The end of a branch: eight columns of residual + dropout(x + bias). The constructor issues the loads, so those of
/// two objects overlap.
template <class T>
class BranchEnd {
 public:
  /// bias may be null.
  __device__ BranchEnd(const T* x, const T* bias, const T* residual, std::int64_t h, std::int64_t row,
                       const Vec8& columns)
      : x_(x + row * h + columns.begin, columns.size), residual_(residual + row * h + columns.begin, columns.size) {
    if (bias != nullptr) bias_.load(bias + columns.begin, columns.size);
  }
  /// Computes the columns, rounded; 0 beyond the row.
  __device__ void compute(const Dropout& dropout, const DropoutRow& row, const Vec8& columns, T (&rounded)[8]) const {
    Accumulation<T> factor[8]{}, value[8], other[8];
    // Drawn before the first wait for memory.
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
