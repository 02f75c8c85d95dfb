#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "src/train/guards/guard_options.hpp"
#include "src/train/guards/step_probe.hpp"

namespace trireme::train {

struct Progress;
struct TrainRecord;

/// Largest relative difference between sums of squares of two runs of a step whose sums over ranks were formed in
/// another order: 4 u sqrt(n), at most 1/2. u is the unit roundoff of `dtype`. n = 4 layers tensor_ranks + data_ranks
/// roundings lie between the samples and a gradient: a layer forms two sums over the tensor ranks in forward and two
/// in backward, and gradients are summed over the data ranks. Independent errors grow with sqrt(n), squares double
/// them, and the other factor of 2 is a margin.
double rounding_bound(DType dtype, int layers, int tensor_ranks, int data_ranks);

/// Runs a suspect training step again and compares the results. A step is a pure function of weights and samples: if
/// the results differ, a machine is faulty; otherwise the numbers themselves are bad. On a repeatable backend
/// (Capability) the results are compared bit by bit, elsewhere within `rounding_bound`.
class StepGuard {
 public:
  /// `model` must live longer.
  StepGuard(ParallelModel& model, const GuardOptions& options);

  void begin() { probe_.begin(searches_); }
  /// Returns whether the step must run without graphs, so that the probe sees every layer.
  bool searches() const { return searches_; }
  /// Notes this rank's sums of losses.
  void note(const model::LossSums& losses) { losses_ = losses; }
  /// Keeps the result of the step before the latest one for `check`, after the latest one's `begin` and before its
  /// first backward. Waits for the device.
  void keep_result_before() { first_ = result(StepProbe::Step::before); }

  /// Checks the step that `record` describes, the next one after `progress`. If it is not finite, or its loss is spiky,
  /// `run_again` computes it again and overwrites `record`. If the result repeats, throws NumericalError with the first
  /// bad tensor, unless the options have rewinds; a spiky loss is a warning, and skips the update if the options say
  /// so. Otherwise warns with the rank and host that differ first, and keeps the second result. Throws MachineError if
  /// that is bad too, or after too many such faults. Collective.
  void check(TrainRecord& record, const Progress& progress, const std::function<void()>& run_again);

 private:
  /// Result of one run of a step on this rank.
  struct Result {
    std::vector<double> sums;
    model::LossSums losses;
    double gradients = 0;  ///< sum of squares of this rank's reduced gradients
  };
  Result result(StepProbe::Step step = StepProbe::Step::latest);
  /// Returns the ranks whose results differ first in the order of computation; none if all are equal. Collective.
  std::vector<int> ranks_that_differ(const Result& first, const Result& second);

  ParallelModel& model_;
  GuardOptions options_;
  StepProbe probe_;
  double bound_;  ///< largest relative difference of sums that rounding explains
  model::LossSums losses_;
  std::optional<Result> first_;  // result that keep_result_before keeps
  bool searches_ = false;
  int machine_faults_ = 0;
};

}  // namespace trireme::train
