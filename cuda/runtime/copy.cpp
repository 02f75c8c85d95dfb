#include "cuda/runtime/copy.hpp"

namespace trireme::cuda {

void copy(CudaStream& stream, ConstTensorView from, TensorView to) {
  TRIREME_CHECK(from.dtype() == to.dtype() && from.numel() == to.numel(), ShapeError, "copy of {} {} to {} {}",
                name_of(from.dtype()), to_string(from.shape()), name_of(to.dtype()), to_string(to.shape()));
  if (from.size_bytes() == 0) return;
  stream.device().check(cudaMemcpyAsync(to.data(), from.data(), from.size_bytes(), cudaMemcpyDefault, stream.handle()),
                        "cudaMemcpyAsync");
  stream.device().launched(stream.handle(), "cudaMemcpyAsync");
}

}  // namespace trireme::cuda
