#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace trireme::io {

/// A whole file mapped into memory for reading. The file must not shrink while it is mapped.
class MappedFile {
 public:
  /// Throws IoError where the file cannot be opened or mapped.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

  /// The process gives back the memory of `part`, some of the bytes: it is read again from the file, or from what the
  /// system still holds of it, where it is used again.
  void release(std::span<const std::byte> part) const;

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace trireme::io
