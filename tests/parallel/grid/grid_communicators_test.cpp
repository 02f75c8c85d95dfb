#include "src/parallel/grid/grid_communicators.hpp"

#include <gtest/gtest.h>

#include "tests/support/mpi_world.hpp"

namespace trireme::parallel {
namespace {

/// World ranks of the members of a communicator, by asking them.
std::vector<int> members(Communicator* comm) {
  if (comm == nullptr) return {};
  ImmediateStream host;
  const std::int32_t own = test::world().rank();
  std::vector<int> ranks(static_cast<std::size_t>(comm->size()));
  comm->all_gather(host, ConstTensorView(&own, {1}), TensorView(ranks.data(), {comm->size()})).wait(host);
  return ranks;
}

TEST(GridCommunicators, AreTheGroupsOfTheArithmeticOnEveryGrid) {
  mpi::MpiCommunicator& world = test::world();
  const int rank = world.rank();
  for (const int context : {1, 2}) {
    for (int tensor = 1; tensor <= world.size(); ++tensor) {
      for (int pipeline = 1; pipeline <= world.size(); ++pipeline) {
        if (world.size() % (tensor * pipeline * context) != 0) continue;
        const int gradient = world.size() / (tensor * pipeline);
        // Half of the ranks that hold the same dense parameters divide the experts, if they are even. On grids with an
        // odd number of stages complete experts divide tensor ranks, too.
        const ProcessGrid grid(world.size(), tensor, pipeline, context, 0, gradient % 2 == 0 ? gradient / 2 : 1,
                               pipeline % 2 == 0 ? 0 : 1);
        GridCommunicators groups = make_grid_communicators(grid, world);
        for (const GroupKind kind : all_group_kinds) {
          EXPECT_EQ(members(groups.of(kind).get()), grid.group(kind, rank)) << name_of(kind);
        }
        EXPECT_EQ(groups.tensor->rank(), grid.position(rank).tensor);
        EXPECT_EQ(groups.pipeline->rank(), grid.position(rank).pipeline);
        EXPECT_EQ(groups.context->rank(), grid.position(rank).context);
        EXPECT_EQ(groups.data->rank(), grid.position(rank).data);
        ASSERT_EQ(groups.expert != nullptr, grid.expert_size() > 1 || grid.folds_experts());
        ASSERT_EQ(groups.expert_tensor != nullptr, grid.folds_experts());
        if (groups.expert == nullptr) continue;
        EXPECT_EQ(groups.expert->rank(), grid.expert_rank(rank));
        EXPECT_EQ(groups.expert_gradient->rank(), grid.expert_gradient_rank(rank));
      }
    }
  }
}

}  // namespace
}  // namespace trireme::parallel
