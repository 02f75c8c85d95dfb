#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/checkpoint/store.hpp"
#include "src/comm/communicator.hpp"

namespace trireme::checkpoint {

/// A piece of a logical tensor to store in a file.
struct TargetPiece {
  std::string tensor;
  Shape shape;  ///< shape of the full tensor
  TensorSlice slice;
};
/// Everything that one rank of the target layout would write.
using TargetFile = std::vector<TargetPiece>;

/// Saves a step again in `store`, divided into other files: `files[i]` is the one that rank i would have written.
/// Attributes and blobs are kept. Collective: any number of ranks of `world` divide the files. A rank reads, writes and
/// releases one piece at a time, so it never holds more than the largest one. The step becomes the latest one, or
/// nothing changes (see write_step). Throws CheckpointError, naming tensors, unless the pieces cover exactly the
/// tensors of `step`, each element once.
void reshard(StepReader& step, Store& store, Communicator& world, std::span<const TargetFile> files);

}  // namespace trireme::checkpoint
