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
  /// Kernels by shape, with all ranks of a node busy (kernels_calibration).
  struct Kernel {
    MeasuredKernel call;
    DType dtype = DType::fp32;
    int ranks = 1;  ///< ranks on a node
  };
  /// A kernel relative to its limiting rate (kernels_gpu_bench).
  struct Share {
    std::string kernel;
    bool moves_memory = false;  ///< `limit` is that of copies, in GB/s; else that of products, in TFLOP/s
    double limit = 0;
    double share = 0;  ///< fraction of the limit reached by the kernel
  };
  /// A collective among the ranks of a group (collectives_bench).
  struct Transfer {
    Collective collective = Collective::all_reduce;
    int ranks = 2;
    int nodes = 1;  ///< number of nodes they span
    double bytes = 0;
    double us = 0;
  };
  std::vector<Kernel> kernels;
  std::vector<Share> shares;
  std::vector<Transfer> transfers;
};

/// Returns `cluster` with its costs replaced by measured ones, for training in `dtype`. Kernels are those measured with
/// a node's number of ranks, or the nearest; likewise links, separately for groups inside and across nodes. Collectives
/// among a measured number of ranks are timed by size. For others a link's latency is the minimum time of a
/// collective's step, its bandwidth the median of those of at least a quarter MiB. The median of several measurements
/// of the same call counts. ConfigError if kernels were measured, but none in `dtype`.
Cluster calibrated(Cluster cluster, const Calibration& calibration, DType dtype);

}  // namespace trireme::plan
