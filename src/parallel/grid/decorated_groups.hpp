#pragma once

#include <functional>
#include <memory>

#include "src/parallel/grid/grid_communicators.hpp"

namespace trireme::parallel {

/// Returns a ForwardingCommunicator that owns `group`.
using GroupDecorator =
    std::function<std::unique_ptr<Communicator>(GroupKind kind, std::unique_ptr<Communicator> group)>;

/// Replaces the groups of several ranks by decorated ones, in the order of all_group_kinds.
void decorate(GridCommunicators& groups, const GroupDecorator& decorator);

/// Undoes the last `decorate`. Nothing may use its communicators any more.
void undecorate(GridCommunicators& groups);

}  // namespace trireme::parallel
