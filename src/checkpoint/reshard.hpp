#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/checkpoint/store.hpp"
#include "src/comm/communicator.hpp"

namespace trireme::checkpoint {

/// A piece of a logical tensor that a file is to hold.
struct TargetPiece {
  std::string tensor;
  Shape shape;  ///< shape of the whole tensor
  TensorSlice slice;
};
/// All that one rank of the layout aimed at would write.
using TargetFile = std::vector<TargetPiece>;

/// Saves a step again in `store`, divided into other files: `files[i]` is the one that rank i would have written.
/// Attributes and blobs stay. Collective: any number of ranks of `world` divide the files among them. A rank reads,
/// writes and releases one piece after another, so that it never holds more than the largest of them. The step becomes
/// the latest one, or nothing changes (see write_step). Throws CheckpointError, naming tensors, where the pieces are
/// not exactly the tensors of `step`, each element once.
void reshard(StepReader& step, Store& store, Communicator& world, std::span<const TargetFile> files);

}  // namespace trireme::checkpoint
