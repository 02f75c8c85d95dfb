#pragma once

#include <span>
#include <vector>

#include "src/backend/backend.hpp"

namespace trireme {

/// Copies a device tensor of fp32 or fp64 to the host; waits for `stream`. A rehearsal returns zeros.
std::vector<double> read_numbers(Backend& backend, Stream& stream, ConstTensorView data);
/// Overwrites a device tensor of fp32 or fp64 with as many numbers of the host, rounded to its type; waits for
/// `stream`.
void write_numbers(Backend& backend, Stream& stream, std::span<const double> numbers, TensorView data);

}  // namespace trireme
