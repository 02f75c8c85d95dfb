#pragma once

#include <memory>
#include <string>

#include "io/posix/folder_lock.hpp"
#include "src/checkpoint/store.hpp"

namespace trireme::io {

/// Checkpoints in a folder that all ranks share:
///
///   ROOT/LATEST                      name of the step saved last: a hint for people and scripts, never followed
///   ROOT/step-00001234/              one folder a step; it has its name only when it is complete
///        manifest.json               what is where, with sizes and digests (io/checkpoint/manifest_json.hpp)
///        rank-00000.h5 ...           the tensors, one HDF5 file for each rank that writes
///   ROOT/.lock                       whose job saves here
///   ROOT/.tmp-..., ROOT/.trash-...   a step being written, and one being replaced or deleted
///
/// Everything is on the disk before the next thing depends on it: files before the manifest, the manifest before the
/// folder's name, the name before LATEST. What replaces a step of the same number gets its name after the old one was
/// renamed to .trash-..., which counts as that step until then. Reading takes plain bytes at the offsets of the
/// manifest, after their digest was checked, and leaves the HDF5 library out.
class CheckpointStore : public checkpoint::Store {
 public:
  /// `root` need not exist; `claim` and `begin` create it. From now on a write beyond the limit on file sizes
  /// (RLIMIT_FSIZE) is an error and no longer a signal, for the whole process.
  explicit CheckpointStore(std::string root);

  const std::string& root() const { return root_; }
  std::string description() const override { return root_; }
  std::string claim(std::int64_t needed_bytes) override;
  void confirm(const std::string& token) override;
  std::string begin(std::int64_t step, std::int64_t needed_bytes) override;
  checkpoint::ShardFile write_shard(const std::string& staging, const std::string& file_name,
                                    std::span<const checkpoint::ShardDataset> datasets) override;
  void commit(const std::string& staging, const checkpoint::Manifest& manifest) override;
  void abandon(const std::string& staging) noexcept override;
  std::vector<checkpoint::StepEntry> steps() override;
  std::unique_ptr<checkpoint::StepReader> open(const std::string& name) override;
  std::string step_name(std::int64_t step) const override;
  void remove(const std::string& name) override;

 private:
  std::string path(const std::string& name) const { return root_ + "/" + name; }
  void take_folder();
  void check_space(std::int64_t needed_bytes) const;
  void clean();
  void restore_or_delete(const std::string& trash_name);
  std::string move_to_trash(const std::string& name);
  std::string latest() const;
  std::string root_;
  std::unique_ptr<FolderLock> lock_;
};

/// What `--load PATH` means: a folder of steps (then `step` is empty), or one step's folder in it.
struct CheckpointPlace {
  std::string root;
  std::string step;
};
CheckpointPlace find_checkpoint(const std::string& path);

}  // namespace trireme::io
