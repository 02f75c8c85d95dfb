#pragma once

#include "cuda/cublaslt/product.hpp"
#include "cuda/runtime/memory.hpp"
#include "src/backend/kernels/gemm.hpp"

namespace trireme::cuda {

/// A product with its epilogue. A row-major [n, out] tensor is a column-major [out, n] matrix, so the operands swap
/// roles: y^T = w x^T.
struct ProductTask {
  KernelKind kind = KernelKind::forward;
  ProductShape shape;
  ProductOperands operands;
  const void* bias = nullptr;  // linear
  Activation activation = Activation::none;
  void* pre_activation = nullptr;  // written by linear, read by linear_backward_input
  const void* dy = nullptr;        // linear_backward_weight
  float* dbias = nullptr;
  const float* sums = nullptr;  // Fp8Forms::sums of dy, or null
  bool repeated = false;        // by other ranks, which must take the same algorithm
};

// Tasks of the functions of GemmKernels with these operands. Throw as those do for shapes and types.
ProductTask forward_task(ConstTensorView x, ConstTensorView w, ConstTensorView bias, Activation activation,
                         TensorView pre_activation, TensorView y);
ProductTask input_task(ConstTensorView dy, ConstTensorView w, Activation activation, ConstTensorView pre_activation,
                       TensorView dx);
ProductTask weight_task(ConstTensorView dy, ConstTensorView x, TensorView dw, TensorView dbias, ProductSum sum);
/// d = alpha op(a) op(b) + beta c. a, b, c, d [batch, rows, columns].
ProductTask batched_task(const BatchedProduct& product, ConstTensorView a, ConstTensorView b, ConstTensorView c,
                         TensorView d);

/// Returns the largest power of two, at most 64, that divides all addresses, also those of a batch's later matrices.
/// Arenas and parameter buffers align tensors to 64 bytes. Larger alignments depend on a tensor's placement: layers and
/// micro-batches would measure one product up to three times, and choose different algorithms.
int alignment_of(const ProductTask& task);

/// Returns the product measured to choose the algorithm: its rows are rounded down to three binary digits. Weight
/// gradients that add and those that overwrite share a measurement. A batch is measured as it is.
ProductShape class_of(ProductShape shape);

/// The plain product, if other kernels run the epilogue.
inline ProductShape plain(ProductShape shape) {
  shape.epilogue = Epilogue::none;
  return shape;
}

/// Destination of a product without epilogue: in forward with an activation, the kept value before it.
inline void* plain_result(const ProductTask& task) {
  const bool is_forward = task.kind == KernelKind::forward;
  return is_forward && task.pre_activation != nullptr ? task.pre_activation : task.operands.d;
}

/// Enqueues the kernels of the epilogue, after the plain product.
void run_epilogue(CudaStream& stream, DeviceMemory& memory, const ProductTask& task);

}  // namespace trireme::cuda
