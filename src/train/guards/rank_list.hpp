#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/comm/communicator.hpp"

namespace trireme::train {

/// Minimum of the ranks' numbers, on every rank. Collective; `world` works on host memory.
std::int64_t least_of_ranks(Communicator& world, std::int64_t mine);

/// Ranks with `here` true, on every rank. Collective; `world` works on host memory.
std::vector<int> ranks_with(Communicator& world, bool here);

/// "rank 3 on host n1, rank 5 on host n2": at most eight of `ranks`, the same list everywhere. Collective; `world`
/// works on host memory.
std::string rank_list(Communicator& world, const std::vector<int>& ranks);

/// Reports the nodes of `ranks`, once each (report_faulty_nodes). Collective; `world` works on host memory.
void report_nodes_of(Communicator& world, const std::vector<int>& ranks);

}  // namespace trireme::train
