#pragma once

#include <optional>
#include <span>
#include <string>

#include "src/checkpoint/store.hpp"

/// Records of files that are whole, in the folder of a step that is not: a save that can be continued keeps them.
namespace trireme::io {

/// Name of the record of a file, beside it. It is hidden: readers of a step pass over it.
std::string shard_record_name(const std::string& file_name);

/// Records a file of `datasets` that is on the disk. IoError.
void write_shard_record(const std::string& folder, const checkpoint::ShardFile& file,
                        std::span<const checkpoint::ShardDataset> datasets);

/// Returns the file that was recorded, after reading it and comparing it with its digest. Empty where there is none, it
/// is of other datasets, or it is damaged.
std::optional<checkpoint::ShardFile> recorded_shard(const std::string& folder, const std::string& file_name,
                                                    std::span<const checkpoint::ShardDataset> datasets);

}  // namespace trireme::io
