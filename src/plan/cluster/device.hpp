#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/plan/cluster/measured_kernels.hpp"

namespace trireme::plan {

/// Overhead of a flash attention block, in forward steps of 128 queries and 64 keys.
constexpr double block_overhead_steps = 1.8;

/// Constants of a rank's device that convert work to time.
struct Device {
  std::string name;       ///< part of the driver's name of the device
  double memory_gb;       ///< 10^9 bytes
  double peak_tflops;     ///< dense bf16
  double product_tflops;  ///< reached at 8192^3
  double copy_gbs;        ///< bytes read and written per second by a large copy
  int multiprocessors;
  double clock_ghz;
  double mma_clocks;                 ///< mma.sync m16n8k16 on a quarter of a multiprocessor
  bool fuses_gelu;                   ///< GELU and its derivative run inside products
  double memory_share = 0.9;         ///< rate of memory-bound kernels, as a share of the copy's
  double norm_backward_share = 0.7;  ///< that of the backward of norms
  double launch_gap_us = 2;          ///< between two kernels of a stream
  double graph_gap_us = 0.5;         ///< between two kernels of a graph
  double host_wait_us = 20;          ///< for a result that the host reads before it enqueues more
  bool has_bf16 = true;              ///< products of bf16 on its matrix units; else fp16 alone
  MeasuredKernels measured = {};     ///< instead of the rates above, if any
};

/// Those of H200, H100, A100 of 80 GB, all SXM, for which step times are published.
std::span<const Device> gpus();
/// Returns the GPU whose name the driver's name contains; null if there are no constants for it.
const Device* find_gpu(const std::string& device);

}  // namespace trireme::plan
