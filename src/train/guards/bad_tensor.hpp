#pragma once

#include <string>

#include "src/train/guards/step_probe.hpp"

namespace trireme::train {

/// Names the first tensor of a step that is not finite, with its layer, the number of such elements, and the ranks and
/// hosts that computed them; the same text on every rank. It looks at the weights, in the model's order; at the results
/// of the layers, where `probe` has searched them; at the losses, of which `losses` are this rank's sums; and at the
/// gradients after their reduction. `probe` may be null: the ranks of a gradient are then those that hold it.
/// Collective.
std::string describe_bad_tensor(ParallelModel& model, const StepProbe* probe, const model::LossSums& losses);

}  // namespace trireme::train
