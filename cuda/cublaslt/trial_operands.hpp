#pragma once

#include "cuda/cublaslt/product.hpp"
#include "cuda/runtime/memory.hpp"

namespace trireme::cuda {

/// Operands of a product's trial runs. Runs cycle through copies that together exceed the L2 cache, so they read from
/// memory, as in training. Copies are aligned exactly as the operands.
class TrialOperands {
 public:
  /// Copies a, b and the kept values on `stream`. The operands themselves are the first of the copies, but d of a
  /// product that accumulates is scratch memory. Takes at most the size of the L2 cache plus this d. Throws
  /// EnvironmentError if they are not free.
  TrialOperands(CudaStream& stream, DeviceMemory& memory, const ProductShape& shape, const ProductOperands& operands);

  ProductOperands next();

 private:
  std::size_t slot_bytes(std::size_t matrix_bytes) const;
  /// Returns a copy in scratch memory, counted from 0.
  ProductOperands copy(std::size_t number) const;

  std::size_t a_bytes_, b_bytes_, d_bytes_, aux_bytes_;
  std::size_t shift_;  // offset of a copy in its slot
  ProductOperands first_;
  std::size_t copy_bytes_, copies_;  // besides the operands themselves
  std::size_t next_ = 0;
  Buffer memory_;
};

}  // namespace trireme::cuda
