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

}  // namespace trireme::cuda
