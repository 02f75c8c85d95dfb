#pragma once

#include "cuda/runtime/stream.hpp"
#include "src/tensor/tensor_view.hpp"

namespace trireme::cuda {

/// to = from, ordered on `stream`: between host and GPU or within the GPU, depending on the addresses. Returns at once
/// where host memory is pinned; pageable host memory may be used again when it returns. Throws ShapeError unless both
/// have the same type and size.
void copy(CudaStream& stream, ConstTensorView from, TensorView to);

}  // namespace trireme::cuda
