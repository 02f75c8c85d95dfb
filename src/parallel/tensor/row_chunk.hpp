#pragma once

#include <cstdint>

namespace trireme::parallel {

/// Chunk `index` of `count` equal ones of a tensor's rows; by default all rows.
struct RowChunk {
  std::int64_t index = 0;
  std::int64_t count = 1;

  /// Rows of the chunk, along the first dimension, which `count` divides; an empty tensor has none.
  template <class View>
  View of(View tensor) const {
    if (!tensor || count == 1) return tensor;
    const std::int64_t rows = tensor.shape()[0] / count;
    return tensor.rows(index * rows, rows);
  }
};

}  // namespace trireme::parallel
