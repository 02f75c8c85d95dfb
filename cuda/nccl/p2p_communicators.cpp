#include "cuda/nccl/p2p_communicators.hpp"

namespace trireme::cuda {

std::vector<P2pSplit> p2p_splits(int rank, int size) {
  // Edge e joins ranks e and e + 1. The edges of a class are disjoint, so one split creates a p2p communicator for
  // each: two classes if the ring is even, a third for the last edge if it is odd. Two ranks have one edge.
  const auto class_of = [size](int edge) { return size % 2 == 1 && edge == size - 1 ? 2 : edge % 2; };
  const int classes = size == 2 ? 1 : 2 + size % 2;
  std::vector<P2pSplit> splits;
  for (int edge_class = 0; edge_class < classes; ++edge_class) {
    for (const bool forward : {true, false}) {
      P2pSplit split;
      for (const int edge : {rank, (rank + size - 1) % size}) {
        if (class_of(edge) != edge_class || (size == 2 && edge != 0)) continue;
        const bool at_start = edge == rank;
        split.colour = edge;
        split.sends = at_start == forward;
        split.key = split.sends ? 0 : 1;
        split.peer = at_start ? (rank + 1) % size : edge;
      }
      splits.push_back(split);
    }
  }
  return splits;
}

}  // namespace trireme::cuda
