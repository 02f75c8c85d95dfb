#pragma once

#include <cstdint>
#include <functional>

#include "src/backend/cpu/bf16_matmul.hpp"

namespace trireme::cpu {

/// Block of a product, complete: sums[r * stride + c] is the element (row + r, column + c).
struct ProductBlock {
  static constexpr std::int64_t extent = 32;  ///< greatest number of rows and columns
  const float* sums;
  std::int64_t stride, row, column, rows, columns;
};

/// Matrix [m, n] that `finish` of multiply_by_tiles reads or writes.
struct TouchedMatrix {
  const void* data = nullptr;  ///< null if there is none
  std::int64_t stride_bytes = 0, element_bytes = 0;
};
/// Lines of these are requested from memory during the product of each block; those of `result` are written.
struct Touched {
  TouchedMatrix other, result;
};

/// Returns whether multiply_by_tiles can run: on x86 processors with AMX, unless ONEDNN_MAX_CPU_ISA excludes it.
bool have_bf16_tiles();

/// Multiplies a by b in the AMX tiles of this machine, in fp32 on the calling thread; a [m, k], b [k, n], with non-zero
/// extents. Hands each block to `finish`, while it is in the L1 cache. The terms of an element are added in order, in
/// pairs, whatever the extents: a part of a product has the bits of the entire one. Copies b to the layout of tiles
/// once, so products of many rows are faster. Source: TDPBF16PS in Intel's Software Developer's Manual.
void multiply_by_tiles(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix<bf16>& a, const Matrix<bf16>& b,
                       ScratchPool& scratch, const Touched& touched,
                       const std::function<void(const ProductBlock&)>& finish);

}  // namespace trireme::cpu
