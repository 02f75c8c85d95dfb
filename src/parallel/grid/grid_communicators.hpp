#pragma once

#include <memory>

#include "src/comm/communicator.hpp"
#include "src/parallel/grid/process_grid.hpp"

namespace trireme::parallel {

/// The communicators of one rank's groups, each in the order of ProcessGrid::group. Made and destroyed by all ranks
/// together; the world must live longer.
struct GridCommunicators {
  std::unique_ptr<Communicator> tensor;
  std::unique_ptr<Communicator> pipeline;
  std::unique_ptr<Communicator> context;
  std::unique_ptr<Communicator> data;
  std::unique_ptr<Communicator> gradient;
  std::unique_ptr<Communicator> model;
  std::unique_ptr<Communicator> embedding;  ///< null on stages between the first and the last
  std::unique_ptr<Communicator> expert;     ///< as the next two, null unless experts are divided over ranks
  std::unique_ptr<Communicator> expert_gradient;
  std::unique_ptr<Communicator> expert_model;
  std::unique_ptr<Communicator> expert_tensor;  ///< null if it would be `tensor`

  std::unique_ptr<Communicator>& of(GroupKind kind);
};

/// Splits `world`, whose size must be the grid's (ShapeError). Collective over `world`.
GridCommunicators make_grid_communicators(const ProcessGrid& grid, Communicator& world);

}  // namespace trireme::parallel
