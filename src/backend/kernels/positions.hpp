#pragma once

#include <cstdint>
#include <limits>

namespace trireme {

/// Positions of the rows of a tensor in the sequence: row i at first + i for i < split, else at second + i - split. A
/// context rank holds two pieces of a sequence, so that a causal mask gives all ranks the same work.
struct Positions {
  std::int64_t first = 0;
  std::int64_t split = std::numeric_limits<std::int64_t>::max();
  std::int64_t second = 0;

  constexpr std::int64_t operator[](std::int64_t row) const { return row < split ? first + row : second + row - split; }
  constexpr Positions from(std::int64_t row) const {
    if (row >= split) return {second + row - split};
    return {first + row, split == std::numeric_limits<std::int64_t>::max() ? split : split - row, second};
  }
};

}  // namespace trireme
