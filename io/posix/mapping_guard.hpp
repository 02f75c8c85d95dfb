#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace trireme::io {

/// Names the file backing mapped memory. Its pages become unreadable after truncation or a disk failure. The process
/// then exits with code 3 and one line naming the file, not by SIGBUS. Any other SIGBUS goes to the handler installed
/// before the first guard.
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
