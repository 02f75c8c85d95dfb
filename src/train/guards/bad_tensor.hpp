#pragma once

#include <string>

#include "src/train/guards/step_probe.hpp"

namespace trireme::train {

/// Names the first tensor of a step that is not finite, with its layer, the number of such elements, and the ranks and
/// hosts that computed them; the same text on every rank. Searches the weights, in the model's order; the results of
/// the layers, if `probe` searched them; the losses, of which `losses` are this rank's sums; and the reduced gradients.
/// With a null `probe` the ranks of a gradient are those that hold it. Collective.
std::string describe_bad_tensor(ParallelModel& model, const StepProbe* probe, const model::LossSums& losses);

}  // namespace trireme::train
