#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace trireme::io {

/// Returns whether bytes begin as a zip archive.
bool is_zip(std::span<const std::byte> bytes);

/// Bytes in a file, with their CRC-32.
class StoredBytes {
 public:
  /// `name` is for messages. A `crc32` of 0 stands for none: torch writes it after `set_crc32_options(False)` and for
  /// the data that `skip_data` leaves out.
  StoredBytes(std::span<const std::byte> bytes, std::uint32_t crc32, std::string name)
      : bytes_(bytes), crc32_(crc32), name_(std::move(name)) {}
  std::span<const std::byte> bytes() const { return bytes_; }
  /// Reads all bytes at the first call, and compares their CRC-32. DataError where it is another one.
  void check();

 private:
  std::span<const std::byte> bytes_;
  std::uint32_t crc32_;
  std::string name_;
};

/// Files in a zip archive whose entries are stored, not compressed, as `torch.save` writes it; also zip64. Each is a
/// part of `bytes`, and not yet checked. `name` is that of the archive, for messages. DataError where the archive is
/// damaged, or its entries are compressed, encrypted, or there twice.
std::map<std::string, std::shared_ptr<StoredBytes>> stored_entries(std::span<const std::byte> bytes,
                                                                   const std::string& name);

}  // namespace trireme::io
