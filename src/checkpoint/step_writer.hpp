#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/checkpoint/state.hpp"
#include "src/checkpoint/store.hpp"
#include "src/comm/communicator.hpp"

namespace trireme::checkpoint {

/// A file of a step that one rank writes.
struct ShardContent {
  std::string file_name;
  std::vector<Piece> pieces;
  std::vector<Piece> blobs;
  std::vector<ShardDataset> datasets;  // datasets of all pieces, then of all blobs

  /// Appends a piece, with `count` local elements, and the array that holds it.
  void add(Piece piece, std::function<ConstTensorView()> data);
  void add_blobs(const std::map<std::string, std::string>& blobs);
  std::int64_t size_bytes() const;

 private:
  std::map<std::string, int> pieces_of_;  // by tensor
};

std::string shard_name(int rank);

/// Limit of a file's size beyond its arrays.
inline constexpr std::int64_t shard_overhead_bytes = std::int64_t{1} << 20;

/// Groups of the ranks whose stores are separate: ranks of a node share one.
struct NodeGroups {
  std::unique_ptr<Communicator> node;     ///< ranks of this rank's node
  std::unique_ptr<Communicator> leaders;  ///< first rank of each node; null on the others
};

/// Writes a step: every rank its files, rank 0 the manifest. Collective. On return the step is on disk and is the
/// latest one. If it throws, on all ranks together, the written files are removed and earlier steps are intact. With an
/// `origin` (see Store::begin) it resumes a killed one. With `nodes` the store of each node gets the files of its ranks
/// and the manifest of all files, and no line is logged. Returns the bytes of tensors in this rank's store.
std::int64_t write_step(Store& store, Communicator& world, const RunDescription& description,
                        std::vector<ShardContent>& shards, const std::string& origin = {},
                        const NodeGroups* nodes = nullptr);

/// Copies the step `source` of the same ranks to `store`: each rank the file that it wrote. Collective; otherwise as
/// `write_step`.
void copy_step(Store& store, Communicator& world, StepReader& source);

}  // namespace trireme::checkpoint
