#pragma once

#include "src/comm/communicator.hpp"

namespace trireme::parallel {

/// A rank's communicators for parameters whose gradients are reduced over the same ranks. Every rank lists the same
/// groups in the same order (Parameter::gradient_group), even if it has no parameter of one. The communicators must
/// outlive the list's users.
struct GradientGroup {
  Communicator& gradient;  ///< ranks with the same parameters: reduces gradients, shards state
  Communicator& tensor;    ///< ranks that split the parameters
  Communicator& model;     ///< ranks of one replica of all parameters of the group
};

/// A rank's place among those that hold the same parameters.
struct GradientGroupMember {
  int ranks = 1;
  int rank = 0;
};

}  // namespace trireme::parallel
