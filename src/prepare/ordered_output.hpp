#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "src/base/thread_pool.hpp"
#include "src/comm/communicator.hpp"
#include "src/prepare/files.hpp"

namespace trireme::prepare {

/// Output file that all ranks write: the data of rank 0, then those of rank 1, and so on. All threads compress it if
/// its name ends in .gz or .zst. Until complete it lies in a folder TARGET.partial, which is exclusive to this job and
/// removed with this object. Rank 0 writes to the file directly, the others once they have announced the size of their
/// data. Without an announcement they keep their data in unnamed files in that folder until `commit`.
class OrderedOutput {
 public:
  /// Collective. Throws IoError if the file cannot be created, EnvironmentError if another job is writing it.
  OrderedOutput(const Files& files, Communicator& comm, ThreadPool& pool, const std::string& target);

  /// Folder shared by all ranks, for other files of this job.
  const std::string& folder() const { return folder_path_; }
  bool is_compressed() const { return compression_ != Compression::none; }

  /// Announces the number of bytes this rank will append. Collective, before any append; not with compression.
  void expect(std::int64_t size_bytes);
  /// This rank's next bytes. Throws IoError.
  void append(std::string_view bytes);

  /// Joins the data of all ranks and renames the file to its target. Collective.
  void commit();

 private:
  void flush();

  std::shared_ptr<const WorkFiles> work_;
  Communicator& comm_;
  ThreadPool& pool_;
  std::string target_;
  Compression compression_;
  std::unique_ptr<WorkFolder> folder_;  // rank 0's
  std::string folder_path_;
  std::string path_;  // path of the file while it is written
  std::unique_ptr<RandomAccessFile> file_;
  std::optional<std::int64_t> begin_;        // position of this rank's bytes in the file, if known
  std::unique_ptr<RandomAccessFile> spool_;  // this rank's bytes otherwise
  std::string buffer_;
  std::int64_t written_bytes_ = 0;
};

}  // namespace trireme::prepare
