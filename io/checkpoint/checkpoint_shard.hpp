#pragma once

#include <span>
#include <string>

#include "src/checkpoint/store.hpp"

namespace trireme::io {

/// Writes one rank's file: HDF5, one contiguous dataset per piece. On return it is on disk, and the digest covers what
/// was written. After an IoError the file is unusable.
checkpoint::ShardFile write_shard_file(const std::string& folder, const std::string& file_name,
                                       std::span<const checkpoint::ShardDataset> datasets);

/// Checks that file `file`, read by the HDF5 library, holds what the manifest lists. Throws CheckpointError naming the
/// tensor. Requires a file whose digest was checked.
void check_shard_file(const std::string& folder, const checkpoint::Manifest& manifest, std::size_t file);

}  // namespace trireme::io
