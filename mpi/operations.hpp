#pragma once

#include <mpi.h>

#include "mpi/progress.hpp"
#include "src/comm/communicator.hpp"

namespace trireme::mpi {

/// Communicator and tag of the messages of one operation. No other operation in flight uses the same tag.
struct Channel {
  ProgressEngine& engine;
  MPI_Comm comm;
  int rank;
  int size;
  int tag;
};

// The operations of a Communicator on host memory. An element is summed from left to right in rank order: by one rank
// that sends copies or, for small tensors, by every rank. All ranks thus get identical bits for all sizes.
//
// Each rank sends directly to each other rank: two steps for an all-reduce (shards to their owners, sums back), whereas
// a ring takes 2 (size - 1). On one machine, where cores are shared, time depends on the number of steps; the bytes are
// the same. Small all-gathers and all-reduces of more than 8 ranks take ceil(log2 size) messages per rank: size - 1
// messages and connections would break jobs of thousands of ranks.

Operation all_reduce(Channel channel, TensorView data, ReduceOp op);
Operation reduce_scatter(Channel channel, ConstTensorView in, TensorView out, ReduceOp op);
Operation all_gather(Channel channel, ConstTensorView in, TensorView out);
Operation broadcast(Channel channel, TensorView data, int root);
Operation barrier(Channel channel);
/// Waits for messages already issued.
Operation completion(Messages messages);

}  // namespace trireme::mpi
