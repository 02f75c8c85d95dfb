#pragma once

#include "src/base/attributes.hpp"

namespace trireme::optim {

struct LossScalerOptions {
  bool dynamic = false;
  double initial_scale = 1;  ///< first scale; the constant one if not dynamic
  double minimum_scale = 1;
  int growth_window = 1000;  ///< good updates in a row before the scale doubles
  int hysteresis = 2;        ///< overflows it takes before the scale is halved
};

/// Factor that keeps fp16 gradients from underflow, by Megatron-LM's algorithm. An overflow resets the window and
/// decrements the hysteresis; at 0 it also halves the scale. After a full window the scale doubles and the hysteresis
/// is restored. A constant scale never changes.
class LossScaler {
 public:
  struct State {
    double scale = 1;
    int good_updates = 0;
    int hysteresis_left = 0;
    friend bool operator==(const State&, const State&) = default;
  };

  /// Throws ConfigError for settings out of range.
  explicit LossScaler(const LossScalerOptions& options);

  bool dynamic() const { return options_.dynamic; }
  double scale() const { return state_.scale; }
  /// Returns whether overflows cannot lower the scale any further.
  bool at_minimum() const { return !options_.dynamic || state_.scale <= options_.minimum_scale; }
  /// Adapts the scale after an iteration. `overflow`: a gradient was not finite, so there was no update.
  void update(bool overflow);

  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  LossScalerOptions options_;
  State state_;
};

/// The options among the attributes "training.*" of a checkpoint.
Attributes attributes_of(const LossScalerOptions& options);

}  // namespace trireme::optim
