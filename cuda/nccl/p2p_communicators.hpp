#pragma once

#include <vector>

namespace trireme::cuda {

/// A p2p communicator is a communicator of two neighbours of a ring of ranks, for the messages of one direction.
/// Messages between other neighbours, or in the other direction, never wait for it. With one communicator for all, a
/// receive that is posted early would block the sends that its own message waits for. P2p communicators are created by
/// splits over all ranks of the ring.
struct P2pSplit {
  int colour = -1;     ///< the p2p communicator this rank belongs to in this split; -1: none
  int key = 0;         ///< 0 for the sender, 1 for the receiver
  int peer = 0;        ///< rank in the ring
  bool sends = false;  ///< this rank sends to the peer
};

/// Returns the splits by which `rank` creates every p2p communicator of a ring of `size` >= 2 ranks: the same number on
/// every rank.
std::vector<P2pSplit> p2p_splits(int rank, int size);

}  // namespace trireme::cuda
