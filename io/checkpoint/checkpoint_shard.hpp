#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "src/checkpoint/store.hpp"

/// Records of complete files in an incomplete step's folder; a resumable save keeps them.
namespace trireme::io {

/// Writes one rank's file: HDF5, one contiguous dataset per piece. On return it is on disk, and the digest covers what
/// was written. After an IoError the file is unusable.
checkpoint::ShardFile write_shard_file(const std::string& folder, const std::string& file_name,
                                       std::span<const checkpoint::ShardDataset> datasets);

/// Begins a copy of a rank's file in `folder`. It gets its name when it is complete, and replaces a file of that name.
/// IoError if it cannot be written.
std::unique_ptr<checkpoint::FileSink> copy_of_shard(const std::string& folder, const checkpoint::FileEntry& file);

/// Checks that file `file`, read by the HDF5 library, holds what the manifest lists. Throws CheckpointError naming the
/// tensor. Requires a file whose digest was checked.
void check_shard_file(const std::string& folder, const checkpoint::Manifest& manifest, std::size_t file);

/// Name of a file's record, in the same folder. It is hidden: readers of a step skip it.
std::string shard_record_name(const std::string& file_name);

/// Records a file of `datasets` that is on disk. IoError.
void write_shard_record(const std::string& folder, const checkpoint::ShardFile& file,
                        std::span<const checkpoint::ShardDataset> datasets);

/// Returns the recorded file after verifying its digest. Empty if there is none, it is of other datasets, or it is
/// damaged.
std::optional<checkpoint::ShardFile> recorded_shard(const std::string& folder, const std::string& file_name,
                                                    std::span<const checkpoint::ShardDataset> datasets);

}  // namespace trireme::io
