#pragma once

#include <string>

#include "src/plan/cluster/device.hpp"

namespace trireme::plan {

/// A connection of one rank, as its collectives see it.
struct Link {
  double bus_gbs = 0;     ///< bus bandwidth of large collectives (bus_bandwidth.hpp), GB/s
  double latency_us = 0;  ///< time of a message without data, a step of a collective
};

/// Machines on which a job is planned: equal nodes, each with equal ranks.
struct Cluster {
  std::string name;
  Device device;  ///< of one rank
  int ranks_per_node = 8;
  Link node;     ///< between ranks of one node
  Link network;  ///< of one rank to other nodes, while all ranks of its node communicate

  /// The cluster called `name`; ConfigError, with the known names, for another name.
  static Cluster preset(const std::string& name);
  /// Names of the presets: "dgx-2h, dgx-a100-40gb, ...".
  static std::string preset_names();
};

/// Reads a cluster from the text of an INI file, whose `name` stands in messages. Values that it does not set are those
/// of the preset that it names as its `base`. ConfigError, with the file's line and field, for unknown, missing or
/// impossible values.
Cluster parse_cluster(const std::string& name, const std::string& text);

}  // namespace trireme::plan
