#pragma once

namespace trireme::parallel {

/// Observer of a stage's groups of parameters (Parameter::group) during a run. It can move parameters and gradients
/// while the stage computes.
class ParameterHooks {
 public:
  virtual ~ParameterHooks() = default;
  /// The group's parameters are about to be read by a forward.
  virtual void before_forward(int group) = 0;
  /// Gradients are about to be added to the group's. May come more than once before after_backward.
  virtual void before_backward(int group) = 0;
  /// One micro-batch's gradients of a part of the group have been added; the rest follows after another
  /// before_backward, and other groups may have their turn before.
  virtual void pause_backward(int group) = 0;
  /// One micro-batch's gradients of the whole group have been added.
  virtual void after_backward(int group) = 0;
  /// The same of recorded work, which holds what the hooks had done when it was recorded.
  virtual void after_replayed_backward(int group) = 0;
};

}  // namespace trireme::parallel
