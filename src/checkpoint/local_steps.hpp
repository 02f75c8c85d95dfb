#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "src/checkpoint/state.hpp"
#include "src/checkpoint/step_writer.hpp"
#include "src/checkpoint/store.hpp"
#include "src/comm/communicator.hpp"

namespace trireme::checkpoint {

/// Steps in the memory or on the disks of the nodes: each node has a store, with the files of its ranks and copies of
/// those of the node before it in a ring. So the loss of one node loses no step. A step has the manifest and the files
/// that it has in a shared store. All calls are collective, and throw on all ranks or on none.
class LocalSteps {
 public:
  /// Ranks with the same `node` see one `store`. All arguments must outlive this object.
  LocalSteps(Store& store, Communicator& world, int node);

  /// Returns whether steps survive the loss of a node: there are several.
  bool has_copies() const { return members_.size() > 1; }

  /// Runs `lock`, which locks a store, on one rank of each node. EnvironmentError if another job or node has it.
  void lock(const std::function<void()>& lock);
  /// Locks the stores, removes their steps except `start`, if any, and checks that the others have room. IoError if
  /// not.
  void prepare(std::span<const StateTensor> tensors, std::int64_t start);
  /// Saves a step, and copies its files. On return every store keeps this step, the one before, and `also_kept`.
  void save(const RunDescription& description, std::span<const StateTensor> tensors, std::int64_t also_kept);
  /// Opens the newest step that `accepts` and of which the nodes together have every file intact; null if there is
  /// none. A warning names a newer one that is incomplete. Reading needs `fetch` first.
  std::unique_ptr<StepReader> open(const std::function<bool(const Manifest&)>& accepts);
  /// Copies `files` of an open step, indices in its manifest, from other nodes unless this node has them.
  void fetch(StepReader& step, const std::vector<std::size_t>& files);
  /// Opens a step that this job saved, on this rank alone.
  std::unique_ptr<StepReader> open_saved(std::int64_t step) { return store_.open(store_.step_name(step)); }
  /// Removes all steps, unless the stores could not be locked.
  void clear();

  const Store& store() const { return store_; }
  /// Bytes of this node's files of the step saved last, with copies.
  std::int64_t stored_bytes() const { return stored_bytes_; }

 private:
  bool leads() const { return groups_.leaders != nullptr; }
  int node_of(int rank) const { return node_of_[static_cast<std::size_t>(rank)]; }
  int previous_node() const;
  void keep_only(const std::set<std::int64_t>& steps);
  std::set<std::size_t> intact_files(StepReader& step);
  std::vector<std::set<std::size_t>> by_node(const std::set<std::size_t>& files);
  std::unique_ptr<StepReader> open_everywhere(std::int64_t step, const std::string& digest);

  Store& store_;
  Communicator& world_;
  NodeGroups groups_;
  std::vector<int> node_of_;               // number of a rank's node: nodes are numbered by their first ranks
  std::vector<std::vector<int>> members_;  // ranks of each node
  std::set<std::size_t> damaged_;          // files of the open step that this rank found damaged
  bool is_locked_ = false;
  std::int64_t previous_ = -1;  // step saved, or started from, last
  std::int64_t stored_bytes_ = 0;
};

/// Files of `manifest` that hold elements of `tensors`, ascending.
std::vector<std::size_t> files_of(const Manifest& manifest, std::span<const StateTensor> tensors);
/// Files that hold blobs.
std::vector<std::size_t> files_of_blobs(const Manifest& manifest);

}  // namespace trireme::checkpoint
