#pragma once

namespace trireme::parallel {

/// Observer of a stage's units of parameters (Parameter::unit) during a run. It can move parameters and gradients
/// while the stage computes. What it enqueues may be recorded with the stage's work and replayed without a call.
class ParameterHooks {
 public:
  virtual ~ParameterHooks() = default;
  /// Parameters of the unit are about to be read by a forward.
  virtual void before_forward(int unit) = 0;
  /// Called before gradients are added to those of the unit; possibly several times before after_backward.
  virtual void before_backward(int unit) = 0;
  /// One micro-batch's gradients of a part of the unit have been added; the rest follows after another before_backward.
  /// Calls for other units may come in between.
  virtual void pause_backward(int unit) = 0;
  /// One micro-batch's gradients of the complete unit have been added. `last`: it was the update's last micro-batch, so
  /// the unit's gradients are complete.
  virtual void after_backward(int unit, bool last) = 0;
  /// Returns whether a unit's backward must end or pause before that of another unit begins.
  virtual bool takes_units_in_turn() const { return false; }
};

/// Hooks that do nothing.
class NoParameterHooks final : public ParameterHooks {
 public:
  void before_forward(int) override {}
  void before_backward(int) override {}
  void pause_backward(int) override {}
  void after_backward(int, bool) override {}
};

}  // namespace trireme::parallel
