#pragma once

#include "src/comm/bus_bandwidth.hpp"
#include "src/plan/cluster/cluster.hpp"

namespace trireme::plan {

/// Latency of each further step of a ring, as a share of the first one's: a ring's messages are in flight on all its
/// links at once.
constexpr double ring_step_share = 0.1;

/// A group of ranks, spread evenly over nodes.
struct GroupPlacement {
  int ranks = 1;
  int ranks_per_node = 1;  ///< members of this group in a node

  int nodes() const { return (ranks + ranks_per_node - 1) / ranks_per_node; }
};

/// Placement of a group of `ranks`, spaced `stride` ranks apart.
GroupPlacement placement(const Cluster& cluster, int ranks, int stride);

/// Milliseconds of a collective on `bytes`, counted as in bus_bandwidth.hpp, with all groups of its kind active. A ring
/// passes every node once: it has the network bandwidth of all of the group's ranks there, at most the node link's.
/// With n ranks its time is bytes x bus_factor / bandwidth + latencies of n - 1 steps, twice for an all-reduce.
/// All-reduces of little data are trees between nodes: 2 log2(nodes) steps (NCCL's ring and tree). If the link has
/// measurements of this collective with this number of ranks, its time depends only on size.
double collective_ms(const Cluster& cluster, Collective op, double bytes, const GroupPlacement& group);

}  // namespace trireme::plan
