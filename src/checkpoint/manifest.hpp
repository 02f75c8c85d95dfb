#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/attributes.hpp"
#include "src/checkpoint/shard_plan.hpp"
#include "src/tensor/dtype.hpp"

namespace trireme::checkpoint {

/// A file of a saved step.
struct FileEntry {
  std::string name;
  std::int64_t size_bytes = 0;
  std::string digest;
};

/// Where some elements of a tensor (or a blob: a one-dimensional array of bytes) are stored. They are contiguous in the
/// file, little-endian, and can be located by the manifest alone.
struct Piece {
  std::string tensor;
  DType dtype = DType::fp32;
  Shape shape;  ///< shape of the full tensor
  TensorSlice slice;
  std::size_t file = 0;           ///< index in `Manifest::files`
  std::string dataset = {};       ///< its name inside the file, for tools that read the file separately
  std::int64_t offset_bytes = 0;  ///< first byte in the file
  std::string digest = {};        ///< digest of the piece's bytes

  std::int64_t size_bytes() const { return slice.count * static_cast<std::int64_t>(size_of(dtype)); }
};

/// Everything about a saved step except the bytes of its tensors.
struct Manifest {
  static constexpr int current_version = 1;

  int format_version = current_version;
  std::int64_t step = 0;
  Attributes attributes;
  std::vector<FileEntry> files;
  std::vector<Piece> blobs;
  std::vector<Piece> pieces;
  std::string digest;  ///< digest of the manifest as it is stored; filled in by the store that reads it
};

/// Throws CheckpointError unless the manifest is consistent. File names must be plain names in one folder, and pieces
/// must lie inside their tensors and files. Every element of every tensor must be stored exactly once.
void validate(const Manifest& manifest);

/// Throws CheckpointError unless each tensor of the list has one type and one shape and each element is in exactly one
/// piece.
void validate_tensors(const std::vector<Piece>& pieces);

/// Longest name of a tensor or blob, which is_plain_name. Dataset names are derived from them and slightly longer.
inline constexpr std::size_t max_tensor_name_bytes = 200;

/// Serialises pieces, for sending them to another rank; includes `file` and `shape`s.
std::string to_text(const std::vector<Piece>& pieces);
std::vector<Piece> pieces_from_text(const std::string& text);

/// Likewise a manifest, without its digest.
std::string to_text(const Manifest& manifest);
Manifest manifest_from_text(const std::string& text);

}  // namespace trireme::checkpoint
