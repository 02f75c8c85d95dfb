#pragma once

namespace trireme {

/// Collective operations of which bandwidths are measured.
enum class Collective { all_reduce, reduce_scatter, all_gather, broadcast, send_receive, all_to_all };

/// Bus bandwidth over algorithm bandwidth, as nccl-tests defines it: the least bytes that a rank's link carries for
/// every byte of the size. With it operations and numbers of ranks compare with the limit of the hardware. All-reduce 2
/// (n-1)/n; reduce-scatter, all-gather and all-to-all, whose size is that of all ranks' parts, (n-1)/n; others 1.
constexpr double bus_factor(Collective collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (collective) {
    case Collective::all_reduce:
      return 2 * others;
    case Collective::reduce_scatter:
    case Collective::all_gather:
    case Collective::all_to_all:
      return others;
    case Collective::broadcast:
    case Collective::send_receive:
      return 1;
  }
  return 1;
}

}  // namespace trireme
