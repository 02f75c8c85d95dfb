#include "src/train/guards/rank_list.hpp"

#include <algorithm>

#include "src/base/machine.hpp"
#include "src/comm/host_collectives.hpp"

namespace trireme::train {

std::int64_t least_of_ranks(Communicator& world, std::int64_t mine) {
  return -all_reduce_number(world, -mine, ReduceOp::max);
}

std::vector<int> ranks_with(Communicator& world, bool here) {
  const std::vector<std::int32_t> flags = all_gather_number(world, here ? 1 : 0);
  std::vector<int> ranks;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (flags[static_cast<std::size_t>(rank)] != 0) ranks.push_back(rank);
  }
  return ranks;
}

std::string rank_list(Communicator& world, const std::vector<int>& ranks) {
  constexpr std::size_t longest = 8;
  const auto end = ranks.begin() + static_cast<std::ptrdiff_t>(std::min(ranks.size(), longest));
  const bool is_named = std::find(ranks.begin(), end, world.rank()) != end;
  const std::vector<std::string> hosts = all_gather_text(world, is_named ? node_name() : "");
  std::string text;
  for (auto rank = ranks.begin(); rank != end; ++rank) {
    text +=
        fmt::format("{}rank {} on host {}", text.empty() ? "" : ", ", *rank, hosts[static_cast<std::size_t>(*rank)]);
  }
  if (ranks.size() > longest) text += fmt::format(" and {} more", ranks.size() - longest);
  return text;
}

void report_nodes_of(Communicator& world, const std::vector<int>& ranks) {
  const bool is_named = std::ranges::find(ranks, world.rank()) != ranks.end();
  std::vector<std::string> nodes = all_gather_text(world, is_named ? node_name() : "");
  if (world.rank() != 0) return;
  std::erase(nodes, "");
  std::ranges::sort(nodes);
  nodes.erase(std::ranges::unique(nodes).begin(), nodes.end());
  report_faulty_nodes(nodes);
}

}  // namespace trireme::train
