#pragma once

#include "cuda/runtime/stream.hpp"
#include "src/tensor/dtype.hpp"

namespace trireme::cuda {

// What follows a product where cuBLASLt does not do it, or does it more slowly. T is fp32, bf16 or fp16, `dtype` says
// which; arithmetic is fp32. Stream-ordered and deterministic.

/// Activation (src/backend/kernels/gemm.hpp) as the kernels know it: nvcc 13.0 does not take the tensors' headers.
enum class KernelActivation { none, gelu_tanh, gelu_erf };

/// z += bias, y = activation(z). z, y [rows, columns] T, which may be the same memory; bias [columns] T or null. z
/// receives the sum where `keep`.
void bias_activation(CudaStream& stream, DType dtype, std::int64_t rows, std::int64_t columns, const void* bias,
                     KernelActivation activation, void* z, bool keep, void* y);

/// dx *= activation'(z). z, dx [numel] T.
void activation_backward(CudaStream& stream, DType dtype, std::int64_t numel, KernelActivation activation,
                         const void* z, void* dx);

/// Rows that one block of column_sums adds up.
constexpr std::int64_t column_sum_rows = 256;
/// sums += the sums of x over rows. x [rows, columns] T; sums [columns] fp32; partial [ceil(rows / column_sum_rows),
/// columns] fp32 is scratch memory. The order of the additions depends on the sizes alone.
void column_sums(CudaStream& stream, DType dtype, std::int64_t rows, std::int64_t columns, const void* x,
                 float* partial, float* sums);

/// y += x, [n] fp32.
void add_vector(CudaStream& stream, std::int64_t n, const float* x, float* y);

}  // namespace trireme::cuda
