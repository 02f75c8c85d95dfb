#pragma once

#include <cstdint>

#include "src/backend/backend.hpp"

namespace trireme::train {

/// Number of elements of `x`, a floating-point tensor in the backend's memory, that are infinite or NaN. `sum`, [1]
/// fp64 there, is work space. Copies `x` to the host if there are any, and waits for the device.
std::int64_t count_not_finite(Backend& backend, ConstTensorView x, TensorView sum);

/// Hash of all elements of `x`, in which all NaNs are equal. Copies `x` to the host part by part.
std::uint64_t hash_of_elements(Backend& backend, ConstTensorView x, std::uint64_t seed);

}  // namespace trireme::train
