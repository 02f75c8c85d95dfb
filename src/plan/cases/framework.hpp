#pragma once

#include <string>

#include "src/plan/cases/published_run.hpp"

namespace trireme::plan {

/// Work of a program that published its runs, where it differs from that of others. Kernels between products read and
/// write tensors of 16 bits; their numbers here count each tensor once for every kernel that reads or writes it.
struct Framework {
  std::string name;

  /// Tensors of a layer's memory-bound kernels, in forward and in backward. hidden: of b s h elements on every tensor
  /// rank; divided: b s h elements among the tensor ranks; scores: b a s s elements among them.
  struct Tensors {
    double hidden = 0;
    double divided = 0;
    double scores = 0;
  };
  Tensors forward, backward;
  bool flash_attention = false;
  bool fused_kernels = true;  ///< else one for each small operation, which reach a lower rate
  double flash_gain = 1;      ///< rate of its flash attention, as a multiple of the first version's

  double loss_bytes = 10;           ///< moved for each logit, in cross entropy forward and backward
  double optimizer_bytes = 50;      ///< moved for each parameter: unscaling, norm, Adam with fp32 state, 16-bit copy
  double gradient_bytes = 2;        ///< each element in the data ranks' reduction
  bool overlaps_gradients = false;  ///< reduction over data ranks beside backward (PyTorch's DDP)
  bool overlaps_tensor = false;     ///< in backward beside the gradients of weights
  double sharding_interference = 0.75;  ///< part of hidden gathers and scatters that slows down the work beside them
  bool one_adapter = false;             ///< gathers of parameters use one network adapter of a node at a time
  bool late_messages = false;           ///< ranks compute while messages between stages travel
};

/// The program that made a run, by its source; by its GPU and options where the source is unknown.
Framework framework_of(const PublishedRun& run);

}  // namespace trireme::plan
