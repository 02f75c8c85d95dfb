#include "src/parallel/grid/grid_communicators.hpp"

#include "src/base/check.hpp"

namespace trireme::parallel {

GridCommunicators make_grid_communicators(const ProcessGrid& grid, Communicator& world) {
  TRIREME_CHECK(world.size() == grid.world_size(), ShapeError, "a grid of {} ranks was laid over a world of {}",
                grid.world_size(), world.size());
  const auto make = [&](GroupKind kind) {
    // A group is known by its first member, and its order is that of the world.
    const std::vector<int> ranks = grid.group(kind, world.rank());
    return world.split(ranks.empty() ? -1 : ranks.front(), world.rank(), to_string(kind));
  };
  GridCommunicators groups;
  groups.tensor = make(GroupKind::tensor);
  groups.pipeline = make(GroupKind::pipeline);
  groups.context = make(GroupKind::context);
  groups.data = make(GroupKind::data);
  groups.gradient = make(GroupKind::gradient);
  groups.model = make(GroupKind::model);
  groups.embedding = make(GroupKind::embedding);
  return groups;
}

}  // namespace trireme::parallel
