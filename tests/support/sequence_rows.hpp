#pragma once

#include <vector>

#include "src/parallel/context/sequence_shard.hpp"

namespace trireme::test {

/// Rows of `shard` of a tensor [s, ...].
template <class T>
std::vector<T> rows_of(const std::vector<T>& whole, const parallel::SequenceShard& shard) {
  const std::int64_t row = static_cast<std::int64_t>(whole.size()) / shard.sequence;
  std::vector<T> rows;
  for (std::int64_t i = 0; i < shard.rows; ++i) {
    const auto begin = whole.begin() + shard.positions[i] * row;
    rows.insert(rows.end(), begin, begin + row);
  }
  return rows;
}

}  // namespace trireme::test
