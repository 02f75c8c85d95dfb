#include "src/parallel/grid/grid_communicators.hpp"

#include "src/base/check.hpp"

namespace trireme::parallel {

std::unique_ptr<Communicator>& GridCommunicators::of(GroupKind kind) {
  constexpr std::unique_ptr<Communicator> GridCommunicators::*members[] = {
      // by GroupKind
      &GridCommunicators::tensor,       &GridCommunicators::pipeline,     &GridCommunicators::context,
      &GridCommunicators::data,         &GridCommunicators::gradient,     &GridCommunicators::model,
      &GridCommunicators::embedding,    &GridCommunicators::expert,       &GridCommunicators::expert_gradient,
      &GridCommunicators::expert_model, &GridCommunicators::expert_tensor};
  return this->*members[static_cast<std::size_t>(kind)];
}

GridCommunicators make_grid_communicators(const ProcessGrid& grid, Communicator& world) {
  TRIREME_CHECK(world.size() == grid.world_size(), ShapeError, "a grid of {} ranks does not fit a world of {} ranks",
                grid.world_size(), world.size());
  const auto make = [&](GroupKind kind) {
    // The first member identifies a group; its order is that of the world.
    const std::vector<int> ranks = grid.group(kind, world.rank());
    return world.split(ranks.empty() ? -1 : ranks.front(), world.rank(), name_of(kind),
                       kind == GroupKind::tensor ? GroupUse::beside_products : GroupUse::general);
  };
  GridCommunicators groups;
  for (const GroupKind kind : all_group_kinds) {
    if (grid.has(kind)) groups.of(kind) = make(kind);
  }
  return groups;
}

}  // namespace trireme::parallel
