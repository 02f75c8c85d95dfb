#pragma once

#include "src/tensor/dtype.hpp"

namespace trireme {

/// Unit roundoff of a floating-point type: half the distance from 1 to the next number. A rounding to nearest changes a
/// number by at most this times its magnitude.
constexpr double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return 0x1p-53;
    case DType::fp32:
      return 0x1p-24;
    case DType::fp16:
      return 0x1p-11;
    default:
      return 0x1p-8;  // bf16
  }
}

}  // namespace trireme
