#include "src/comm/host_collectives.hpp"

namespace trireme {

std::vector<std::vector<std::uint8_t>> all_to_all_bytes(Communicator& comm,
                                                        std::span<const std::span<const std::uint8_t>> outgoing,
                                                        const Caller& caller) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const auto own = static_cast<std::size_t>(comm.rank());
  TRIREME_CHECK(outgoing.size() == ranks, ShapeError, "{} messages for {} ranks", outgoing.size(), ranks);
  ImmediateStream host;
  std::vector<std::vector<std::uint8_t>> incoming(ranks);
  incoming[own].assign(outgoing[own].begin(), outgoing[own].end());
  if (ranks == 1) return incoming;

  // Gathers the sizes of all messages on every rank: ranks^2 numbers, few compared to the data.
  std::vector<std::int64_t> sizes;
  for (const auto& message : outgoing) sizes.push_back(static_cast<std::int64_t>(message.size()));
  std::vector<std::int64_t> all_sizes(ranks * ranks);
  comm.all_gather({host, caller}, TensorView(sizes.data(), {comm.size()}),
                  TensorView(all_sizes.data(), {std::int64_t{comm.size()} * comm.size()}))
      .wait(host);
  std::vector<Transfer> transfers;
  for (std::size_t r = 0; r < ranks; ++r) {
    if (r == own) continue;
    const auto peer = static_cast<int>(r);
    if (!outgoing[r].empty()) {
      // A Transfer's tensor is not const, but a send only reads it.
      auto* const data = const_cast<std::uint8_t*>(outgoing[r].data());
      transfers.push_back({Transfer::Direction::send, peer, TensorView(data, {sizes[r]})});
    }
    if (const std::int64_t size = all_sizes[r * ranks + own]; size > 0) {
      incoming[r].resize(static_cast<std::size_t>(size));
      transfers.push_back({Transfer::Direction::receive, peer, TensorView(incoming[r].data(), {size})});
    }
  }
  for (Work& work : comm.exchange({host, caller}, transfers)) work.wait(host);
  return incoming;
}

}  // namespace trireme
