#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "src/base/attributes.hpp"
#include "src/tensor/shape.hpp"
#include "src/tensor/tensor_view.hpp"

namespace trireme::checkpoint {

/// A piece of a logical tensor that this rank holds: of the tensor `name`, the elements [flat_begin, flat_begin +
/// data.numel()) of `box`, flattened row-major. A complete shard has flat_begin 0 and the box's size; a piece of the
/// distributed optimizer ignores the box's rows.
struct StateTensor {
  std::string name;  ///< "model/h.0.ln_1.weight", "adamw_m/wte" ...
  Shape shape;       ///< shape of the full tensor: never padded, the same on every grid
  Box box;
  std::int64_t flat_begin = 0;
  TensorView data;           ///< host memory: read by a save, overwritten by a load
  bool written_here = true;  ///< this rank writes the piece in a save; each element has one writer among the ranks
  /// Tensors that the same ranks share: ranks whose pieces of all tensors of a family are equal load each piece once
  /// together. -1: none.
  int family = -1;
};

/// Content of a checkpoint besides tensors.
struct RunDescription {
  std::int64_t step = 0;                     ///< updates done
  Attributes attributes;                     ///< model shape, training state, digests
  std::map<std::string, std::string> blobs;  ///< bytes by name: the tokenizer's definition
};

}  // namespace trireme::checkpoint
