#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace trireme::io {

/// Returns whether the bytes start like a zip archive.
bool is_zip(std::span<const std::byte> bytes);

/// Bytes in a file, with their CRC-32.
class StoredBytes {
 public:
  /// `name` is for messages. A `crc32` of 0 stands for none: torch writes it after `set_crc32_options(False)` and for
  /// the data that `skip_data` leaves out.
  StoredBytes(std::span<const std::byte> bytes, std::uint32_t crc32, std::string name)
      : bytes_(bytes), crc32_(crc32), name_(std::move(name)) {}
  std::span<const std::byte> bytes() const { return bytes_; }
  /// Reads all bytes on the first call and checks their CRC-32. DataError on a mismatch.
  void check();

 private:
  std::span<const std::byte> bytes_;
  std::uint32_t crc32_;
  std::string name_;
};

/// Files in a zip archive whose entries are stored, not compressed, as `torch.save` writes it; also zip64. Each is a
/// part of `bytes`, not yet checked. `name` is the archive's, for messages. DataError if the archive is damaged, or
/// entries are compressed, encrypted or duplicated.
std::map<std::string, std::shared_ptr<StoredBytes>> stored_entries(std::span<const std::byte> bytes,
                                                                   const std::string& name);

}  // namespace trireme::io
