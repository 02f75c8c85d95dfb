#pragma once

#include <span>
#include <string>

#include "src/checkpoint/store.hpp"

namespace trireme::io {

/// Writes one rank's file: HDF5, one contiguous dataset for each piece. On return it is on the disk, and the digest is
/// that of what is there. IoError; then the file is worth nothing.
checkpoint::ShardFile write_shard_file(const std::string& folder, const std::string& file_name,
                                       std::span<const checkpoint::ShardDataset> datasets);

/// Whether the HDF5 library finds in file `file` what the manifest says: CheckpointError, naming the tensor, where not.
/// Only for a file whose digest has been checked.
void check_shard_file(const std::string& folder, const checkpoint::Manifest& manifest, std::size_t file);

}  // namespace trireme::io
