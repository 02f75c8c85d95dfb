#pragma once

#include <memory>
#include <set>
#include <string>

#include "io/posix/folder_lock.hpp"
#include "src/prepare/files.hpp"

namespace trireme::io {

/// A `prepare::WorkFolder`, locked by a `FolderLock`. Refuses a folder without a lock or a part: it is another
/// program's.
class WorkFolder final : public prepare::WorkFolder {
 public:
  /// Throws as `prepare::WorkFiles::lock_folder`.
  WorkFolder(std::string path, const std::string& target, std::set<std::string> kept);
  ~WorkFolder() override;
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  void keep_none() override { kept_.clear(); }

 private:
  bool clear() const;
  std::string path_;
  std::set<std::string> kept_;
  std::unique_ptr<FolderLock> lock_;
};

}  // namespace trireme::io
