#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "io/compression/input_file.hpp"
#include "io/posix/spool.hpp"
#include "io/posix/work_folder.hpp"
#include "src/base/thread_pool.hpp"
#include "src/comm/communicator.hpp"

namespace trireme::io {

/// Output file that all ranks write: the data of rank 0, then those of rank 1, and so on. All threads compress it where
/// its name ends in .gz or .zst. Until it is complete it is in a folder TARGET.partial, which belongs to this job alone
/// and is removed with this object. Rank 0 writes into the file at once, the others after they have announced the size
/// of their data. Without an announcement they keep their data in unnamed files in that folder until `commit`.
class OrderedOutput {
 public:
  /// Collective. Throws IoError where the file cannot be made, EnvironmentError where another job makes it.
  OrderedOutput(Communicator& comm, ThreadPool& pool, const std::string& target);

  /// The folder, which all ranks see, for whatever else is needed meanwhile.
  const std::string& folder() const { return folder_path_; }
  bool is_compressed() const { return compression_ != Compression::none; }

  /// Collective, before anything is appended, not with compression: this rank will append so many bytes.
  void expect(std::int64_t size_bytes);
  /// This rank's next bytes. Throws IoError.
  void append(std::string_view bytes);

  /// Collective: puts the parts together and gives the file its name.
  void commit();

 private:
  void flush();

  Communicator& comm_;
  ThreadPool& pool_;
  std::string target_;
  Compression compression_;
  std::optional<WorkFolder> folder_;  // rank 0's
  std::string folder_path_;
  std::string path_;  // path of the file while it is written
  Descriptor descriptor_;
  std::optional<std::int64_t> begin_;  // first of this rank's bytes in the file, where it is known
  std::optional<Spool> part_;          // this rank's bytes, where it is not
  std::string buffer_;
  std::int64_t written_bytes_ = 0;
};

}  // namespace trireme::io
