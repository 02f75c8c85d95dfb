#pragma once

#include <memory>
#include <set>
#include <string>

#include "io/posix/folder_lock.hpp"
#include "src/checkpoint/store.hpp"

namespace trireme::io {

/// Checkpoints in a folder that all ranks share; io/README.md describes the files and the commit. Every file is synced
/// to disk before the next one depends on it. Reading takes plain bytes at the manifest's offsets, without the HDF5
/// library.
class CheckpointStore : public checkpoint::Store {
 public:
  /// `root` need not exist; `claim` and `begin` create it. From then on, exceeding the file size limit (RLIMIT_FSIZE)
  /// is an error instead of a signal, process-wide.
  explicit CheckpointStore(std::string root);

  const std::string& root() const { return root_; }
  /// [0] Locks the store for this job, as `claim` does, if the folder exists; otherwise writes nothing. The newest step
  /// then stays the newest until this job saves.
  void reserve();
  std::string description() const override { return root_; }
  std::string claim(std::int64_t needed_bytes) override;
  void confirm(const std::string& token) override;
  std::string begin(std::int64_t step, std::int64_t needed_bytes, const std::string& origin) override;
  checkpoint::ShardFile write_shard(const std::string& staging, const std::string& file_name,
                                    std::span<const checkpoint::ShardDataset> datasets) override;
  std::unique_ptr<checkpoint::FileSink> add_file(const std::string& folder, const checkpoint::FileEntry& file) override;
  void commit(const std::string& staging, const checkpoint::Manifest& manifest) override;
  void abandon(const std::string& staging) noexcept override;
  std::vector<checkpoint::StepEntry> steps() override;
  std::string manifest_text(const std::string& name) override;
  std::unique_ptr<checkpoint::StepReader> open_with(const std::string& name, const std::string& manifest_text) override;
  std::string step_name(std::int64_t step) const override;
  void remove(const std::string& name) override;

 private:
  std::string path(const std::string& name) const { return root_ + "/" + name; }
  void take_folder();
  void check_space(std::int64_t needed_bytes) const;
  void clean(const std::string& kept);
  bool may_be_complete(const std::string& name);
  void restore_or_delete(const std::string& trash_name);
  /// Returns whether there is a folder of this name, or a link to one.
  bool has_folder(const std::string& name) const;
  std::string move_to_trash(const std::string& name);
  /// Deletes a folder that no step is in, or a link, whose target stays. What cannot be deleted stays, with one
  /// warning: no save depends on it.
  void discard(const std::string& name);
  std::string latest() const;
  std::string root_;
  std::unique_ptr<FolderLock> lock_;
  std::set<std::string> undeletable_;  // names
};

/// Returns whether a folder's name is that of a step: step-NNNNNNNN.
bool is_step_name(std::string_view name);

/// Checkpoint at a path: a folder of steps (then `step` is empty), or the folder of one step.
struct CheckpointLocation {
  std::string root;
  std::string step;
};
CheckpointLocation find_checkpoint(const std::string& path);

}  // namespace trireme::io
