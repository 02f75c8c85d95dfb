#pragma once

#include <gpu/device.cuh>

#include "src/base/error.hpp"
#include "src/tensor/dtype.hpp"

namespace trireme::cuda {

/// Calls `function` by `call_with` with the type of `dtype`: fp32, bf16 or fp16, and fp64 if the kernels run
/// on the host. ConfigError for fp64 on a GPU, ShapeError for integer types. Training on a GPU refuses fp64, and its
/// kernels would enlarge the build and the library.
template <bool with_fp64 = gpu::fp64_kernels, class Function>
void dispatch_gpu(DType dtype, Function&& function) {
  if constexpr (with_fp64) {
    dispatch_float(dtype, function);
  } else {
    switch (dtype) {
      case DType::fp32:
        return call_with<float>(function);
      case DType::bf16:
        return call_with<bf16>(function);
      case DType::fp16:
        return call_with<fp16>(function);
      case DType::fp64:
        throw ConfigError("fp64 runs on the CPU backend alone: use <backend> cpu");
      default:
        throw ShapeError("a floating-point tensor is needed here, not {}", name_of(dtype));
    }
  }
}

}  // namespace trireme::cuda
