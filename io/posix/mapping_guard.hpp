#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace trireme::io {

/// Names the file behind mapped memory. Its pages can no longer be read after it was truncated or its disk failed.
/// The process then ends with exit code 3 and one line that names the file, not by SIGBUS. A SIGBUS of another cause
/// goes to the handler installed before the first guard.
class MappingGuard {
 public:
  MappingGuard(const std::string& path, std::span<const std::byte> bytes);
  ~MappingGuard();
  MappingGuard(const MappingGuard&) = delete;
  MappingGuard& operator=(const MappingGuard&) = delete;

  struct Range;

 private:
  Range* range_;
};

}  // namespace trireme::io
