#include "src/parallel/context/sequence_shard.hpp"

#include "src/base/check.hpp"

namespace trireme::parallel {

SequenceShard SequenceShard::of(std::int64_t sequence, int context_rank, int context_size) {
  if (context_size == 1) return {sequence, sequence, {}};
  const std::int64_t chunks = 2 * std::int64_t{context_size};
  TRIREME_CHECK(sequence % chunks == 0, ConfigError,
                "<seq_length> {} does not divide into {} equal chunks, two for each of {} context ranks: with "
                "<context_parallel_size> {} it must be a multiple of {}",
                sequence, chunks, context_size, context_size, chunks);
  const std::int64_t chunk = sequence / chunks;
  return {sequence, 2 * chunk, {context_rank * chunk, chunk, (chunks - 1 - context_rank) * chunk}};
}

SequenceShard SequenceShard::of_length(std::int64_t length) const {
  const auto context_size = static_cast<int>(sequence / rows);
  return of(length, context_size == 1 ? 0 : static_cast<int>(positions.first / positions.split), context_size);
}

}  // namespace trireme::parallel
