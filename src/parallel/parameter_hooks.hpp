#pragma once

namespace trireme::parallel {

/// Observer of a stage's units of parameters (Parameter::unit) during a run. It can move parameters and gradients
/// while the stage computes.
class ParameterHooks {
 public:
  virtual ~ParameterHooks() = default;
  /// the unit's parameters are about to be read by a forward.
  virtual void before_forward(int unit) = 0;
  /// Gradients are about to be added to the unit's. May come more than once before after_backward.
  virtual void before_backward(int unit) = 0;
  /// One micro-batch's gradients of a part of the unit have been added; the rest follows after another
  /// before_backward, and other groups may have their turn before.
  virtual void pause_backward(int unit) = 0;
  /// One micro-batch's gradients of the whole unit have been added.
  virtual void after_backward(int unit) = 0;
  /// The same of recorded work, which holds what the hooks had done when it was recorded.
  virtual void after_replayed_backward(int unit) = 0;
};

}  // namespace trireme::parallel
