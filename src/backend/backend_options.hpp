#pragma once

#include <string>

namespace trireme {

/// Settings of a rank's backend. A setting that a backend does not support (Capability) has no effect there.
struct BackendOptions {
  int world_rank = 0;
  int local_rank = 0;                    ///< number among the ranks of this machine; selects the device
  bool check_launches = false;           ///< wait for every kernel, so that an error names its cause: slow
  bool allow_reduced_precision = false;  ///< fp32 products may round their inputs to TF32
  bool deterministic = false;            ///< the same bits in every run: no algorithm is chosen by its time
  double max_wait_s = 0;                 ///< after which the device counts as hung; 0: no limit
  std::string algorithm_cache = {};      ///< file of the algorithms chosen for products; empty: none
};

}  // namespace trireme
