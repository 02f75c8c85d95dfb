#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace trireme::prepare
