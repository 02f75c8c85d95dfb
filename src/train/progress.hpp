#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "src/optim/loss_scaler.hpp"
#include "src/train/trainer.hpp"

namespace trireme::train {

/// State of a run, beside its tensors, as the attributes "state.*" of a checkpoint hold it.
struct SavedState {
  Progress progress;
  std::int64_t updates = 0;
  optim::LossScaler::State loss_scale;
};

/// Parses the attributes. CheckpointError, with the attribute and its value, where one is missing, is no number, is out
/// of range or contradicts another.
SavedState state_from(const std::map<std::string, std::string>& attributes);

}  // namespace trireme::train
