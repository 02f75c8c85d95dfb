#pragma once

#include <cstdint>
#include <functional>

#include "src/backend/cpu/bf16_matmul.hpp"

namespace trireme::cpu {

/// Consecutive rows of a product, complete: sums[r * stride + j] is the element (first + r, j).
struct ProductRows {
  const float* sums;
  std::int64_t stride, first, rows;
};

/// Returns whether multiply_by_tiles can run: on x86 processors with AMX, unless ONEDNN_MAX_CPU_ISA excludes it.
bool have_bf16_tiles();

/// Multiplies a by b in the AMX tiles of this machine, in fp32 on the calling thread; a [m, k], b [k, n], with non-zero
/// extents. Hands all rows to `finish`, some at a time in order. The terms of an element are added in order, in pairs,
/// whatever the extents: a part of a product has the bits of the entire one. Copies b to the layout of tiles once, so
/// products of many rows are faster. Source: TDPBF16PS in Intel's Software Developer's Manual.
void multiply_by_tiles(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix<bf16>& a, const Matrix<bf16>& b,
                       ScratchPool& scratch, const std::function<void(const ProductRows&)>& finish);

}  // namespace trireme::cpu
