#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "io/pickle/pickle.hpp"
#include "io/posix/mapped_file.hpp"
#include "src/tensor/dtype.hpp"
#include "src/tensor/shape.hpp"

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

/// A tensor in a file, contiguous and row-major.
struct StoredTensor {
  DType dtype = DType::fp32;
  Shape shape;
  std::span<const std::byte> bytes;
  std::shared_ptr<StoredBytes> storage;  ///< holds `bytes`; must be checked before use
};

/// A file of `torch.save`: a pickled value and the bytes of its tensors. Reads both the zip archives written since 2020
/// and the earlier format of concatenated pickles. Executes nothing (see io/pickle).
class TorchArchive {
 public:
  /// `bytes`, the entire file, must outlive this object. `name` is for messages. DataError if it is damaged or of
  /// another kind.
  TorchArchive(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }
  const PickleDocument& document() const { return *document_; }
  PickleValue root() const { return document_->root(); }
  /// Returns whether a value is a tensor or a parameter.
  static bool is_tensor(const PickleValue& value);
  /// Returns the tensor that a value describes. DataError naming `what` if it is not a tensor, has no type of `DType`,
  /// is not contiguous or exceeds its storage. Does not read the bytes.
  StoredTensor tensor(const PickleValue& value, const std::string& what) const;

 private:
  void read_zip(std::span<const std::byte> bytes);
  void read_pickles(std::span<const std::byte> bytes);
  std::string name_;
  std::unique_ptr<PickleDocument> document_;
  std::map<std::string, std::shared_ptr<StoredBytes>, std::less<>> storages_;  // by key
};

/// Maps a regular file. IoError if it cannot be read, DataError if it is another kind of file.
std::shared_ptr<const MappedFile> map_file(const std::string& path);

/// A torch.save archive and the mapping that holds its tensors.
struct MappedArchive {
  explicit MappedArchive(const std::string& path);
  std::shared_ptr<const MappedFile> file;
  TorchArchive archive;
};

/// Returns the extents of a tuple of integers, also of a torch.Size. DataError naming `file` and `what` for other
/// values, negative numbers and more than five dimensions.
Shape shape_of(const PickleValue& value, const std::string& file, const std::string& what);

/// Returns the number of bytes of a tensor. DataError, which names `file` and `what`, beyond 2^62.
std::int64_t size_bytes_of(const Shape& shape, DType dtype, const std::string& file, const std::string& what);

}  // namespace trireme::io
