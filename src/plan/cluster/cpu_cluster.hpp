#pragma once

#include "src/plan/cluster/cluster.hpp"

namespace trireme::plan {

/// The cluster "cpu": this machine, with one rank per core available to the process. Kernels have the fp32 rates of one
/// core of an AMD EPYC with AVX-512, measured with its neighbour equally loaded. Calibrate for other processors.
Cluster cpu_cluster();

}  // namespace trireme::plan
