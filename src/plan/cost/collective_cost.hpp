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

/// Placement of a group of `ranks`, of which one follows the other at a distance of `stride` ranks.
GroupPlacement placement(const Cluster& cluster, int ranks, int stride);

/// Milliseconds of a collective on `bytes`, counted as in bus_bandwidth.hpp, while all groups of its kind work. A ring
/// goes once through every node: it has the network of all of the group's ranks there, at most a node's own link. With
/// n ranks its time is bytes x bus_factor / bandwidth + latencies of n - 1 steps, twice for an all-reduce. All-reduces
/// of little data are trees between nodes: 2 log2(nodes) steps (NCCL's ring and tree). Where the link
/// has this collective among as many ranks as measured, its time is by size alone.
double collective_ms(const Cluster& cluster, Collective op, double bytes, const GroupPlacement& group);

}  // namespace trireme::plan
