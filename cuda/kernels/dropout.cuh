#pragma once

#include <gpu/device.cuh>

#include "src/backend/kernels/dropout.hpp"

namespace trireme::cuda {

/// Dropout::words as a GPU computes them fastest.
__device__ inline std::array<std::uint32_t, 4> dropout_words(std::uint64_t key, std::int64_t sample, std::int64_t row,
                                                             std::int64_t column_block) {
  return Dropout::words(key, sample, row, column_block,
                        [](std::uint32_t a, std::uint32_t b) { return gpu::wide_product(a, b); });
}

/// Dropout's rule for two columns at once.
class PackedThreshold {
 public:
  __device__ explicit PackedThreshold(std::uint32_t keep_threshold)
      : rest_((0x8000U - (keep_threshold & 0x7fffU)) * 0x10001U), high_((keep_threshold & 0x8000U) == 0 ? ~0U : 0) {}
  /// Bits 15 and 31 say whether the lower and the upper half of `word` are below the threshold.
  __device__ std::uint32_t below(std::uint32_t word) const {
    const std::uint32_t sum = (word & 0x7fff7fffU) + rest_;  // bits 15 and 31: the lower 15 bits are not below
    return ~((word & sum) | (word & high_) | (sum & high_));
  }

 private:
  std::uint32_t rest_, high_;
};

}  // namespace trireme::cuda
