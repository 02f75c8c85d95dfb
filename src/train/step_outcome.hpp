#pragma once

#include <cstddef>

#include "src/backend/host_copies.hpp"
#include "src/train/parallel_model.hpp"

namespace trireme::train {

/// Outcome of a training step in device memory: the losses, the norm of the gradients, and the factor by which the
/// optimizer's kernels multiply them. If the step is not finite, the factor is NaN and these kernels change nothing, so
/// that the host may enqueue the update before it knows the outcome. The outcome is copied to the host.
class StepOutcome {
 public:
  /// `model` must live longer.
  StepOutcome(ParallelModel& model, int norm_power);

  /// Takes the losses and reduced gradients of the step enqueued last, and decides about its update
  /// (OptimizerKernels::decide): gradients have the factor `loss_scale`, their norm is limited to `norm_limit`.
  /// Stream-ordered. Collective.
  void enqueue(double loss_scale, double norm_limit);
  /// The factor, in device memory.
  const double* factor() const { return part(factor_at, 1).as<double>(); }

  struct Numbers {
    model::LossSums mine;  ///< sums of this rank
    model::LossSums all;   ///< sums of all ranks
    double norm = 0;       ///< without the loss scale
    double factor = 0;
  };
  /// Returns the outcome of the latest step, as soon as the device has computed it.
  Numbers read();
  /// Allows updates again, after a step that had none.
  void allow_updates();

 private:
  // Elements of numbers_, before the sums by gradient group.
  static constexpr std::int64_t mine_at = 0, all_at = model::LossSums::kinds, norm_at = 2 * model::LossSums::kinds,
                                factor_at = norm_at + 1, groups_at = factor_at + 1;
  TensorView part(std::int64_t begin, std::int64_t count) const { return numbers_.view().flat(begin, count); }

  ParallelModel& model_;
  int norm_power_;
  std::int64_t groups_;
  Tensor numbers_;  // fp64
  HostCopies copy_;
};

}  // namespace trireme::train
