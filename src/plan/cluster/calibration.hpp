#pragma once

#include <string>
#include <vector>

#include "src/comm/bus_bandwidth.hpp"
#include "src/plan/cluster/cluster.hpp"
#include "src/plan/cluster/measured_kernels.hpp"
#include "src/tensor/dtype.hpp"

namespace trireme::plan {

/// Measurements of a machine, by bench/kernels and bench/collectives.
struct Calibration {
  /// Kernels by shape, while all ranks of a node were at work (kernels_calibration).
  struct Kernel {
    MeasuredKernel call;
    DType dtype = DType::fp32;
    int ranks = 1;  ///< ranks on a node
  };
  /// A kernel beside the rate that limits it (kernels_gpu_bench).
  struct Share {
    std::string kernel;
    bool moves_memory = false;  ///< `limit` is that of copies, in GB/s; else that of products, in TFLOP/s
    double limit = 0;
    double share = 0;  ///< part of the limit that the kernel reaches
  };
  /// A collective among the ranks of a group (collectives_bench).
  struct Transfer {
    Collective collective = Collective::all_reduce;
    int ranks = 2;
    int nodes = 1;  ///< on which they are
    double bytes = 0;
    double us = 0;
  };
  std::vector<Kernel> kernels;
  std::vector<Share> shares;
  std::vector<Transfer> transfers;
};

/// `cluster` with the costs that were measured instead of its own, for training in `dtype`. Kernels are those
/// measured with as many ranks as a node has, or the nearest number; likewise links, for which groups inside a node and
/// across nodes count apart. Collectives among as many ranks as measured take their time by size. For others a link's
/// latency is the least time of a step of a collective, its bandwidth the median of those of at least a quarter MiB. Of
/// several measurements of the same call the median counts. ConfigError where kernels were measured, but none in
/// `dtype`.
Cluster calibrated(Cluster cluster, const Calibration& calibration, DType dtype);

}  // namespace trireme::plan
