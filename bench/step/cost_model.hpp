#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/step/kernel_call.hpp"

namespace trireme::bench {

/// Constants of a GPU, by which calls of kernels are turned into time.
struct Gpu {
  std::string name;       ///< part of the driver's name of the device
  double peak_tflops;     ///< dense bf16
  double product_tflops;  ///< reached at 8192^3
  double copy_gbs;        ///< bytes read and written a second by a large copy
  int multiprocessors;
  double clock_ghz;
  double mma_clocks;                 ///< mma.sync m16n8k16 on a quarter of a multiprocessor
  bool fuses_gelu;                   ///< GELU and its derivative run inside products
  double memory_share = 0.9;         ///< rate of memory-bound kernels, as a share of the copy's
  double norm_backward_share = 0.7;  ///< that of the backward of norms
  double launch_gap_us = 2;          ///< between two kernels of a stream
  double graph_gap_us = 0.5;         ///< between two kernels of a graph
  double host_wait_us = 20;          ///< for a result that the host reads before it enqueues more
};

/// H200, H100 and A100, 80 GB, all SXM.
std::span<const Gpu> gpus();
/// The one that a driver's name contains; null where there are no constants for it.
const Gpu* find_gpu(const std::string& device);

/// One row of the table of constants: value by GPU, and its source.
struct ConstantRow {
  std::string name;
  std::vector<std::string> values;
  std::string source;
};
std::vector<ConstantRow> constants();

/// Time of a product without what follows it: the best tile and split of k. Tiles of all multiprocessors make a wave;
/// k takes 256 more for filling and emptying a tile's pipeline; partial sums of a split k are written and read once. At
/// least the time of its bytes at the copy's rate.
double product_ms(const Gpu& gpu, const ProductCall& product);

/// Time of attention by this program's kernels (cuda/kernels/flash_attention*.cu). A block's step over a tile takes the
/// clocks of its instructions and, added to them, of its mma.sync, by warps that share a quarter of a multiprocessor.
/// Blocks start in their order, each on the multiprocessor that is free first,
/// and take some time to start and end.
double attention_ms(const Gpu& gpu, const KernelCall& call);

/// Time of a call, in milliseconds, and its launches.
struct Cost {
  double main = 0;
  double end = 0;  ///< the end of a product, in kernels of its own
  double gap = 0;  ///< after launches, and where the host waits
  int launches = 0;
};
Cost cost_of(const Gpu& gpu, const KernelCall& call, bool graphs = false);

}  // namespace trireme::bench
