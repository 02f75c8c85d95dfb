#pragma once

#include <cstddef>
#include <cstdint>

#include "src/backend/kernels/gemm.hpp"
#include "src/tensor/stream.hpp"

namespace trireme::cuda {

// Epilogues of products that cuBLASLt does not fuse, or fuses more slowly. T is fp32, bf16 or fp16, given by `dtype`;
// arithmetic is fp32. Stream-ordered and deterministic.

/// z += bias, y = activation(z). z, y [rows, columns] T, which may be the same memory; bias [columns] T or null. z
/// receives the sum if `keep`.
void bias_activation(Stream& stream, DType dtype, std::int64_t rows, std::int64_t columns, const void* bias,
                     Activation activation, void* z, bool keep, void* y);

/// dx *= activation'(z). z, dx [numel] T.
void activation_backward(Stream& stream, DType dtype, std::int64_t numel, Activation activation, const void* z,
                         void* dx);

/// Scratch memory of column_sums.
std::size_t column_sums_bytes(std::int64_t rows, std::int64_t columns);
/// sums += the sums of x over rows. x [rows, columns] T; sums [columns] fp32. The summation order depends only on the
/// sizes.
void column_sums(Stream& stream, DType dtype, std::int64_t rows, std::int64_t columns, const void* x, void* scratch,
                 float* sums);

/// y += the sums of x [rows, n] over rows, in fp32.
void add_rows(Stream& stream, std::int64_t rows, std::int64_t n, const float* x, float* y);

}  // namespace trireme::cuda
