#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "io/posix/file_handle.hpp"

namespace trireme::io {

/// File that grows by whole records, which other programs can read at once.
class AppendFile {
 public:
  /// Opens `path`, or creates it, and where given cuts it to its first `kept_bytes` bytes. Errors name `option` (a
  /// field in angle brackets) and `path`. Throws IoError, here and below.
  AppendFile(const std::string& option, const std::string& path, std::optional<std::int64_t> kept_bytes = {});
  void append(std::string_view bytes);

 private:
  [[noreturn]] void fail(const char* what) const;
  std::string name_;
  Descriptor file_;
};

}  // namespace trireme::io
