#pragma once

#include <array>
#include <map>
#include <tuple>

#include "src/backend/kernels/kernel_call.hpp"
#include "src/comm/bus_bandwidth.hpp"
#include "src/plan/cluster/cluster.hpp"

namespace trireme::plan {

/// Tiles that cover an extent.
constexpr std::int64_t tiles_of(std::int64_t extent, std::int64_t tile) { return (extent + tile - 1) / tile; }

/// Time of a memory-bound kernel.
inline double memory_ms(const Device& device, double bytes) {
  return bytes / (device.copy_gbs * 1e6 * device.memory_share);
}

/// Time of a product, and the part of it times the share of multiprocessors that its last wave leaves free.
struct ProductTime {
  double ms = 0;
  double idle_ms = 0;
};
/// Time of a product without its epilogue, with the best tile and split of k. Tiles of all multiprocessors form a wave,
/// and small ones run at a share of the rate; filling and draining a tile's pipeline adds 256 to k; partial sums of a
/// split k are written and read once. At least the time of its bytes at the copy rate. Products of FP8 run at the rate
/// of Device::fp8_tflops.
ProductTime product_time(const Device& device, const ProductCall& product);

/// Time of attention by this program's kernels: by warp groups (cuda/kernels/warp_group_*.cu), or by mma.sync
/// (cuda/kernels/flash_attention*.cu). A block's step over a tile takes the sum of the clocks of its instructions and
/// of its products, for warps sharing a quarter of a multiprocessor. Blocks start in order, each on the first free
/// multiprocessor, with some start and end overhead. Without tensor cores (cuda/kernels/attention.cu) a multiply-add
/// reads shared memory twice, a warp's 32 numbers a clock. Attention of single queries
/// (cuda/kernels/decode_attention.cu) takes the time of its bytes.
double attention_ms(const Device& device, const KernelCall& call);

/// Time of a call, in milliseconds, and its launches.
struct Cost {
  double main = 0;
  double end = 0;   ///< a product's epilogue in separate kernels
  double idle = 0;  ///< ProductTime::idle_ms, which `main` leaves out of a product beside others
  double gap = 0;   ///< after launches, and while the host waits
  int launches = 0;
};
Cost cost_of(const Device& device, const KernelCall& call, bool graphs = false);

/// Part of an update in equal buckets that runs beside the next forward, on a stream of the lowest priority. Products
/// and attention fill the registers of their multiprocessors, and memory-bound kernels the memory. So the update has
/// what last waves leave free, and gaps and waits: `idle_ms` together. The forward waits for the first bucket.
double hidden_update_ms(double update_ms, std::size_t buckets, double idle_ms);

/// Costs of calls on one device. Attention, whose time is a simulation of its blocks, is simulated once for equal
/// calls.
class CallCosts {
 public:
  explicit CallCosts(const Device& device);
  /// cost_of. A product `beside_collective` leaves multiprocessors to a tensor group's collective.
  Cost of(const KernelCall& call, bool graphs, bool beside_collective);
  /// Share of the multiprocessors that such a collective leaves.
  double share_beside_collective() const { return beside_collective_.product_tflops / device_.product_tflops; }

 private:
  /// Everything on which the cost of an attention depends.
  using AttentionKey = std::tuple<KernelKind, double, std::array<std::int64_t, 9>, bool, bool, bool, bool>;

  Device device_, beside_collective_;
  std::map<AttentionKey, Cost> attention_;
};

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
/// An all-to-all between nodes takes the longer of the parts for ranks on the node, over its link, and for the others,
/// over each rank's share of the network. All-reduces of little data are trees between nodes: 2 log2(nodes) steps
/// (NCCL's ring and tree). If the link has measurements of this collective with this number of ranks, its time depends
/// only on size.
double collective_ms(const Cluster& cluster, Collective op, double bytes, const GroupPlacement& group);

}  // namespace trireme::plan
