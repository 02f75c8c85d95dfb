#pragma once

#include "src/backend/kernels/attention.hpp"

namespace trireme {

/// Attention kernels with a second form, by the products of warp groups that some GPUs have.
class WarpGroupAttention {
 public:
  virtual ~WarpGroupAttention() = default;
  /// Sets whether attention uses them from now on. It does not at first: a test on the device comes before. Returns
  /// whether the device has them.
  virtual bool use_warp_groups(bool use) = 0;
};

/// The same of any attention kernels.
inline bool use_warp_groups(AttentionKernels& attention, bool use) {
  auto* groups = dynamic_cast<WarpGroupAttention*>(&attention);
  return groups != nullptr && groups->use_warp_groups(use);
}

}  // namespace trireme
