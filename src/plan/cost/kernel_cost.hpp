#pragma once

#include "src/backend/kernels/kernel_call.hpp"
#include "src/plan/cluster/cluster.hpp"

namespace trireme::plan {

/// Time of a product without its epilogue, with the best tile and split of k. Tiles of all multiprocessors form a wave;
/// filling and draining a tile's pipeline adds 256 to k; partial sums of a split k are written and read once. At least
/// the time of its bytes at the copy rate.
double product_ms(const Device& device, const ProductCall& product);

/// Time of attention by this program's kernels (cuda/kernels/flash_attention*.cu). A block's step over a tile takes the
/// sum of the clocks of its instructions and its mma.sync, for warps sharing a quarter of a multiprocessor. Blocks
/// start in order, each on the first free multiprocessor, with some start and end overhead.
double attention_ms(const Device& device, const KernelCall& call);

/// Time of a call, in milliseconds, and its launches.
struct Cost {
  double main = 0;
  double end = 0;  ///< a product's epilogue in separate kernels
  double gap = 0;  ///< after launches, and while the host waits
  int launches = 0;
};
Cost cost_of(const Device& device, const KernelCall& call, bool graphs = false);

}  // namespace trireme::plan
