#pragma once

#include <cstdint>

#include "src/backend/kernels/positions.hpp"

namespace trireme::parallel {

/// The positions of a sequence that one rank of a context group holds. The sequence is split into 2 C chunks, of which
/// rank c of C holds chunks c and 2 C - 1 - c, in this order. With a causal mask late chunks cost more than early ones,
/// and every such pair costs the same. Without one every chunk costs the same. One rank alone holds all positions.
struct SequenceShard {
  std::int64_t sequence = 0;  ///< positions of the full sequence
  std::int64_t rows = 0;      ///< positions of this rank
  Positions positions;        ///< positions of the rows

  /// ConfigError if a sequence of `sequence` does not divide into 2 C chunks.
  static SequenceShard of(std::int64_t sequence, int context_rank = 0, int context_size = 1);
  /// This rank's shard of a sequence of `length` positions. ConfigError as above.
  SequenceShard of_length(std::int64_t length) const;
};

}  // namespace trireme::parallel
