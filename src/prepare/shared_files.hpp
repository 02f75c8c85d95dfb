#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/thread_pool.hpp"
#include "src/comm/communicator.hpp"
#include "src/prepare/files.hpp"

namespace trireme::prepare {

/// On-disk store of all ranks' documents, one record each: every rank writes its own, then reads any rank's. It lies in
/// a folder shared by all ranks, whose owner removes it.
class DocumentSpool {
 public:
  /// Files are named `name` and the rank's number. Collective.
  DocumentSpool(const Files& files, Communicator& comm, std::string folder, std::string name);

  /// This rank's next document.
  void append(std::string_view record);
  /// Makes all documents readable, numbered consecutively across ranks. Collective.
  void finish();

  /// Number of this rank's first document, and of the one after its last.
  std::int64_t begin() const { return firsts_[static_cast<std::size_t>(comm_.rank())]; }
  std::int64_t end() const { return firsts_[static_cast<std::size_t>(comm_.rank()) + 1]; }
  /// Bytes of one of this rank's documents.
  std::int64_t size_bytes(std::int64_t document) const {
    const auto at = static_cast<std::size_t>(document - begin());
    return offsets_[at + 1] - offsets_[at];
  }
  /// Bytes of all of this rank's documents.
  std::int64_t size_bytes() const { return offsets_.back(); }

  /// Any rank's document. Thread-safe.
  std::string read(std::int64_t document) const;

 private:
  std::string path_of(int rank) const;
  const RandomAccessFile& file_of(int rank) const;
  void flush();

  std::shared_ptr<const WorkFiles> work_;
  Communicator& comm_;
  std::string folder_;
  std::string name_;
  std::unique_ptr<RandomAccessFile> file_;
  std::string buffer_;
  std::int64_t written_bytes_ = 0;
  std::vector<std::int64_t> offsets_ = {0};  // offsets of this rank's records; the file ends with them
  std::vector<std::int64_t> firsts_;         // first record of each rank, and the number of all
  std::vector<std::int64_t> sizes_bytes_;    // bytes of each rank's records
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<RandomAccessFile>> others_;  // files of the ranks read so far
};

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
