#pragma once

#include <array>
#include <string_view>

namespace trireme::plan {

/// Program-specific costs of a training program with published runs. Kernels between products read and write 16-bit
/// tensors. Their counts include each tensor once per kernel that reads or writes it.
struct Framework {
  /// Tensors of a layer's memory-bound kernels, in forward and in backward. hidden: of b s h elements on every tensor
  /// rank; divided: b s h elements among the tensor ranks; scores: b a s s elements among them.
  struct Tensors {
    double hidden = 0;
    double divided = 0;
    double scores = 0;
  };

  std::string_view name;  ///< in the column `program`
  Tensors forward, backward;
  int flash_attention = 0;    ///< version, to which its rate is proportional; 0: scores are kept in memory
  bool fused_kernels = true;  ///< false: one kernel per small operation, at a lower rate

  double loss_bytes = 10;               ///< moved per logit, in cross entropy forward and backward
  double optimizer_bytes = 50;          ///< moved per parameter: unscaling, norm, Adam with fp32 state, 16-bit copy
  bool fp32_gradients = true;           ///< data ranks reduce the gradients of bf16 in fp32
  bool overlaps_gradients = false;      ///< reduction over data ranks overlaps with backward (PyTorch's DDP)
  bool overlaps_tensor = false;         ///< in backward, with the gradients of weights
  double sharding_interference = 0.75;  ///< fraction of hidden gathers and scatters that slows down concurrent work
  bool one_adapter = false;             ///< gathers of parameters use one network adapter of a node at a time
  bool selective_is_sequence_parallel = false;  ///< even if a row does not say so
  /// Lower-case words of schedules that imply the program.
  std::array<std::string_view, 4> schedules{};
};

/// Returns the program of this name. Throws ConfigError with all names if there is none.
const Framework& find_framework(std::string_view name);
/// Returns the first program implied by a schedule, in lower case: Megatron-Core if none.
const Framework& framework_of_schedule(std::string_view schedule);

}  // namespace trireme::plan
