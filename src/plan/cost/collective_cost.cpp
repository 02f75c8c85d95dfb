#include "src/plan/cost/collective_cost.hpp"

#include <algorithm>
#include <cmath>

namespace trireme::plan {

GroupPlacement placement(const Cluster& cluster, int ranks, int stride) {
  return {ranks, std::clamp(cluster.ranks_per_node / stride, 1, ranks)};
}

double collective_ms(const Cluster& cluster, Collective op, double bytes, const GroupPlacement& group) {
  if (group.ranks <= 1) return 0;
  const int nodes = group.nodes();
  const bool one_node = nodes == 1;
  if (one_node || group.ranks_per_node == 1) {
    const Link& link = one_node ? cluster.node : cluster.network;
    if (const auto us = link.measured.time_us({collective_name(op, group.ranks), {}, bytes})) return 1e-3 * *us;
  }
  double gbs = group.ranks_per_node == 1 ? cluster.network.bus_gbs() : cluster.node.bus_gbs();
  if (!one_node) gbs = std::min(gbs, group.ranks_per_node * cluster.network.bus_gbs());
  const double inner_us = cluster.node.latency_us, outer_us = cluster.network.latency_us;
  const double passes = op == Collective::all_reduce ? 2 : 1;
  const double ring_us = passes * (one_node ? inner_us : outer_us) * (1 + ring_step_share * (group.ranks - 2));
  const double tree_us = passes * (std::log2(nodes) * outer_us + (group.ranks_per_node > 1 ? inner_us : 0));
  const bool has_tree = op == Collective::all_reduce || op == Collective::broadcast;
  const double latency_us = op == Collective::send_receive ? (one_node ? inner_us : outer_us)
                            : has_tree                     ? std::min(ring_us, std::max(tree_us, inner_us))
                                                           : ring_us;
  return bytes * bus_factor(op, group.ranks) / (gbs * 1e6) + latency_us * 1e-3;
}

}  // namespace trireme::plan
