#pragma once

#include <string>
#include <vector>

#include "src/comm/bus_bandwidth.hpp"
#include "src/plan/cluster/device.hpp"

namespace trireme::plan {

/// A connection of one rank, in terms of its collectives.
struct Link {
  double gbs = 0;         ///< bandwidth in one direction by the data sheet, GB/s
  double share = 1;       ///< part of it that is the bus bandwidth of large collectives (bus_bandwidth.hpp)
  double latency_us = 0;  ///< time of a message without data, a step of a collective
  /// Collectives by bytes, instead of the above: "OPERATION of RANKS" (collective_name), without extents.
  MeasuredKernels measured = {};

  double bus_gbs() const { return gbs * share; }
};

/// Name of a collective among `ranks`, as Link::measured has it.
std::string collective_name(Collective collective, int ranks);

/// Machines for which a job is planned: equal nodes, each with equal ranks.
struct Cluster {
  std::string name;
  Device device;  ///< device of every rank
  int ranks_per_node = 8;
  Link node;               ///< between ranks of one node
  Link network;            ///< from one rank to other nodes, with all ranks of its node communicating
  int cores_per_node = 0;  ///< shared by the ranks of a node; 0: every rank has its own device
};

/// The cluster called `name`; ConfigError, with the known names, for another name.
Cluster cluster_preset(const std::string& name);
/// All presets.
const std::vector<Cluster>& cluster_presets();
/// Names of the presets: "dgx-2h, dgx-a100-40gb, ...".
std::string cluster_preset_names();

/// Parses a cluster from the text of an INI file; `name` is for messages. Lines are `key = value`, sections [cluster],
/// [device], [node] and [network], comments begin with # or ;. Unset values are those of the preset named by `base` in
/// [cluster]; without a base every link is required. ConfigError, with the file's line and field, for unknown, missing
/// or impossible values.
Cluster parse_cluster(const std::string& name, const std::string& text);

}  // namespace trireme::plan
