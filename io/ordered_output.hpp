#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "io/durable_file.hpp"
#include "io/spool.hpp"
#include "src/comm/communicator.hpp"

namespace trireme::io {

/// One file that all ranks write: what rank 0 appended, then what rank 1 did, and so on. It has another name until it
/// is whole. Rank 0 writes into it at once; the others keep their parts in files without a name beside it until
/// `commit`.
class OrderedOutput {
 public:
  /// Collective. Throws IoError where the file cannot be made.
  OrderedOutput(Communicator& comm, const std::string& target);

  /// This rank's next bytes. Throws IoError.
  void append(std::string_view bytes);

  /// Collective: puts the parts together and gives the file its name.
  void commit();

 private:
  void flush();

  Communicator& comm_;
  std::string target_;
  std::optional<TemporaryFile> file_;  // rank 0's
  std::optional<Spool> part_;          // the other ranks'
  std::string path_;                   // of the file while it is written
  Descriptor descriptor_;
  std::string buffer_;
  std::int64_t written_bytes_ = 0;
};

}  // namespace trireme::io
