#pragma once

#include "src/backend/kernels/kernel_call.hpp"
#include "src/plan/cluster/device.hpp"

namespace trireme::plan {

/// Time of a product without what follows it: the best tile and split of k. Tiles of all multiprocessors make a wave;
/// k takes 256 more for filling and emptying a tile's pipeline; partial sums of a split k are written and read once. At
/// least the time of its bytes at the copy's rate.
double product_ms(const Device& device, const ProductCall& product);

/// Time of attention by this program's kernels (cuda/kernels/flash_attention*.cu). A block's step over a tile takes the
/// clocks of its instructions and, added to them, of its mma.sync, by warps that share a quarter of a multiprocessor.
/// Blocks start in their order, each on the multiprocessor that is free first,
/// and take some time to start and end.
double attention_ms(const Device& device, const KernelCall& call);

/// Time of a call, in milliseconds, and its launches.
struct Cost {
  double main = 0;
  double end = 0;  ///< the end of a product, in kernels of its own
  double gap = 0;  ///< after launches, and where the host waits
  int launches = 0;
};
Cost cost_of(const Device& device, const KernelCall& call, bool graphs = false);

}  // namespace trireme::plan
