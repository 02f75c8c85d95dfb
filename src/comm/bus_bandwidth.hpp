#pragma once

namespace trireme {

/// Collectives with measured bandwidths.
enum class Collective { all_reduce, reduce_scatter, all_gather, broadcast, send_receive, all_to_all };

/// Bus bandwidth over algorithm bandwidth, as nccl-tests defines it: the minimum bytes per link for every byte of the
/// size. It makes operations and rank counts comparable with the hardware limit. All-reduce 2 (n-1)/n; reduce-scatter,
/// all-gather and all-to-all, whose size covers all ranks' parts, (n-1)/n; others 1.
constexpr double bus_factor(Collective collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  const double factors[] = {2 * others, others, others, 1, 1, others};  // by Collective
  return factors[static_cast<int>(collective)];
}

}  // namespace trireme
