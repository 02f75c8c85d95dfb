#pragma once

#include <cstdint>

#include "src/tensor/dtype.hpp"
#include "src/tensor/stream.hpp"

// Kernels of one warp, around the wrappers of cuda/gpu/mma.cuh. T is bf16 or fp16, given by `dtype`.

namespace trireme::test {

/// Computes c += a b, with a [16, 16] T, c [16, 8] fp32, and b [16, 8] T, or its transpose [8, 16] if `transposed`.
/// All are in shared memory, copied there without a wait in between.
void multiply_tile(Stream& stream, DType dtype, const void* a, const void* b, bool transposed, float* c);

/// both = low and high, rounded to T, in the low and the high half.
void pack_pair(Stream& stream, DType dtype, float low, float high, std::uint32_t* both);

/// Copies four numbers at a time: y[0..3] = x[0..3] and y[4..7] = x[4..7]. The first group is read when only it was
/// waited for, the second later. y[8..11] is the result of a copy that is not valid.
void copy_in_groups(Stream& stream, const float* x, float* y);

}  // namespace trireme::test
