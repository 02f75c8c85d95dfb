#include "src/parallel/grid/decorated_groups.hpp"

#include "src/comm/forwarding_communicator.hpp"

namespace trireme::parallel {
namespace {

template <class Function>
void for_groups_of_ranks(GridCommunicators& groups, const Function& function) {
  for (const GroupKind kind : all_group_kinds) {
    std::unique_ptr<Communicator>& group = groups.of(kind);
    if (group != nullptr && group->size() > 1) group = function(kind, std::move(group));
  }
}

}  // namespace

void decorate(GridCommunicators& groups, const GroupDecorator& decorator) { for_groups_of_ranks(groups, decorator); }

void undecorate(GridCommunicators& groups) {
  for_groups_of_ranks(groups, [](GroupKind, std::unique_ptr<Communicator> group) {
    return dynamic_cast<ForwardingCommunicator&>(*group).take_inner();
  });
}

}  // namespace trireme::parallel
