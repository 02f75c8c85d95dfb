#pragma once

#include <mpi.h>

#include <span>

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

// The operations of a Communicator on host memory. The sum of an element is formed from left to right in rank order: by
// one rank that sends copies, or where tensors are small by every rank. So all ranks get the same bits, whatever the
// sizes.
//
// They send directly from each rank to each other: two steps for an all-reduce (shards to their owners, sums back),
// where a ring takes 2 (size - 1). On one machine, where cores are shared, time depends on the number of steps; the
// bytes are the same. Small all-gathers and all-reduces of more than 8 ranks take ceil(log2 size) messages a rank:
// size - 1 of them, and as many connections, would stop jobs of thousands of ranks.

Operation all_reduce(Channel channel, TensorView data, ReduceOp op);
Operation reduce_scatter(Channel channel, ConstTensorView in, TensorView out, ReduceOp op);
Operation all_gather(Channel channel, ConstTensorView in, TensorView out);
Operation broadcast(Channel channel, TensorView data, int root);
Operation barrier(Channel channel);
/// Waits for messages issued already.
Operation completion(Messages messages);

}  // namespace trireme::mpi
