#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "src/tensor/shape.hpp"

namespace trireme::checkpoint {

/// Some elements of a logical tensor, contiguous in memory: [flat_begin, flat_begin + count) of `box`, flattened
/// row-major. Two slices may divide the tensor in different ways. Their common elements are found without a loop over
/// single elements.
struct TensorSlice {
  Box box;
  std::int64_t flat_begin = 0;
  std::int64_t count = 0;
};

/// Describes the fault of `slice` in a tensor of this shape; empty if none.
std::string slice_problem(const Shape& shape, const TensorSlice& slice);

/// Elements that are contiguous in both of two slices.
struct ElementRange {
  std::int64_t from = 0;  ///< first one, counted from the source's first element
  std::int64_t to = 0;    ///< the same one, counted from the target's first element
  std::int64_t count = 0;
};

/// Calls `visit` for all common elements of `source` and `target`, in maximal ranges. `from` and `to` ascend. Both
/// slices must be valid for one tensor shape.
void for_each_common_range(const TensorSlice& source, const TensorSlice& target,
                           const std::function<void(const ElementRange&)>& visit);

/// Checks that every element of a tensor of this shape is in exactly one of `slices`, none of which has a problem.
/// Returns the fault, empty if none.
std::string coverage_problem(const Shape& shape, std::span<const TensorSlice> slices);

}  // namespace trireme::checkpoint
