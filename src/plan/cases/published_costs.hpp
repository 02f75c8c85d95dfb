#pragma once

#include <string>

#include "src/plan/cost/costs.hpp"

namespace trireme::plan {

/// Constants of a hardware generation fitted to published runs, as fractions of the cluster's rates: four per
/// generation.
struct FittedShares {
  double product = 0.9;  ///< rate of products, of Device::product_tflops
  double memory = 0.85;  ///< rate of memory-bound kernels, of Device::copy_gbs
  double node = 0.75;    ///< Link::share inside a node
  double network = 0.7;  ///< Link::share between nodes; V100's is not fitted
  double unfused = 0.6;  ///< rate of memory-bound kernels without fusion, of `memory`; V100 alone
};

/// Cluster of published runs: a preset, or one that differs only in its GPU's rates.
struct PublishedCluster {
  std::string generation;  ///< owner of the fitted constants: "V100"
  Cluster cluster;
  FittedShares shares;
  double flash_share;  ///< rate of FlashAttention's first version forward on long sequences, of products; assumed
};

/// The cluster called `name`: a preset (cluster_preset_names) or dgx-2, of V100 of 350 W. ConfigError for others.
PublishedCluster published_cluster(const std::string& name);

/// Times in milliseconds of the operations of published runs on a cluster.
class PublishedCosts {
 public:
  explicit PublishedCosts(const PublishedCluster& cluster, bool fp8 = false);

  /// [m, k] x [k, n] of 16-bit elements.
  double product(double m, double n, double k) const;
  /// A product of a layer: with fp8 at 1.5 times the rate.
  double layer_product(double m, double n, double k) const;
  /// `count` of them with the depth or width of a head, by cuBLAS: tiles are full only for multiples of 128. At least
  /// the time of the bytes.
  double head_products(double count, double m, double n, double k) const;
  /// FLOPs of flash attention with a causal mask on sequences of `s` tokens; backward makes 85 % of forward's.
  double flash_attention(double flops, double s, bool backward) const;
  double memory(double bytes) const;
  double unfused_memory(double bytes) const { return memory(bytes) / published_.shares.unfused; }
  double launches(int kernels) const;
  /// A collective of ranks at a distance of `stride`; `bytes` of the full tensor.
  double collective(Collective op, double bytes, int ranks, int stride) const;
  int node_stride() const { return cluster_.ranks_per_node; }
  /// A message between two ranks, for which the host waits.
  double message(double bytes, bool to_another_node) const;

 private:
  PublishedCluster published_;
  Cluster cluster_;  ///< with the fitted shares of its links
  bool fp8_;
};

}  // namespace trireme::plan
