#pragma once

#include <cstddef>
#include <span>

#include "src/comm/communicator.hpp"

namespace trireme::mpi {

/// out[i] = sources[0][i] + sources[1][i] + ..., added from left to right, or their maximum (NaN if any is NaN). 16-bit
/// types are summed in fp32 and rounded once. `out` may be one of the sources. `dtype` is a floating-point type, int64
/// or int32; ShapeError for others.
void reduce_in_order(DType dtype, ReduceOp op, std::span<const std::byte* const> sources, std::byte* out,
                     std::int64_t count);

}  // namespace trireme::mpi
