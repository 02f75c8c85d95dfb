#pragma once

#include "cuda/cublaslt/product.hpp"
#include "cuda/runtime/memory.hpp"

namespace trireme::cuda {

/// Operands of the trial runs of a product. A run takes the next of several copies, which exceed the L2 cache together:
/// it reads from memory, as in training. Copies are aligned as the operands are, and no better.
class TrialOperands {
 public:
  /// Copies a, b and the kept values on `stream`. The operands themselves are the first of the copies, but d of a
  /// product that accumulates is scratch memory. Takes at most the bytes of the L2 cache, and those of this d. Throws
  /// EnvironmentError where they are not free.
  TrialOperands(CudaStream& stream, DeviceMemory& memory, const ProductShape& shape, const ProductOperands& operands);

  /// The operands of the next run.
  ProductOperands next();

 private:
  /// Bytes that a matrix takes between others.
  std::size_t slot_bytes(std::size_t matrix_bytes) const;
  /// A copy in scratch memory, from 0 on.
  ProductOperands copy(std::size_t number) const;

  std::size_t a_bytes_, b_bytes_, d_bytes_, aux_bytes_;
  std::size_t shift_;  // distance of a copy from its slot's begin
  ProductOperands first_;
  std::size_t copy_bytes_, copies_;  // beside the operands themselves
  std::size_t next_ = 0;
  Buffer memory_;
};

}  // namespace trireme::cuda
