#pragma once

#include "src/plan/cluster/cluster.hpp"

namespace trireme::plan {

/// The cluster "cpu": this machine, a rank on each core its processes may run on. Kernels have the rates in fp32 of one
/// core of an AMD EPYC with AVX-512, measured while its neighbour did the same. Another processor's come from a
/// calibration.
Cluster cpu_cluster();

}  // namespace trireme::plan
