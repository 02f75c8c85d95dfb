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

/// Output file that all ranks write: the data of rank 0, then those of rank 1, and so on. All threads compress it where
/// its name ends in .gz or .zst. Until it is complete it is in a folder TARGET.partial, which belongs to this job alone
/// and is removed with this object. Rank 0 writes into the file at once, the others after they have announced the size
/// of their data. Without an announcement they keep their data in unnamed files in that folder until `commit`.
class OrderedOutput {
 public:
  /// Collective. Throws IoError where the file cannot be made, EnvironmentError where another job makes it.
  OrderedOutput(const Files& files, Communicator& comm, ThreadPool& pool, const std::string& target);

  /// Folder that all ranks see, for other files of this job.
  const std::string& folder() const { return folder_path_; }
  bool is_compressed() const { return compression_ != Compression::none; }

  /// Collective, before anything is appended, not with compression: this rank will append so many bytes.
  void expect(std::int64_t size_bytes);
  /// This rank's next bytes. Throws IoError.
  void append(std::string_view bytes);

  /// Collective: puts the data of all ranks together and gives the file its name.
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
  std::optional<std::int64_t> begin_;        // position of this rank's bytes in the file, where it is known
  std::unique_ptr<RandomAccessFile> spool_;  // this rank's bytes, where it is not
  std::string buffer_;
  std::int64_t written_bytes_ = 0;
};

}  // namespace trireme::prepare
