#pragma once

#include <string>

#include "io/megatron/megatron_checkpoint.hpp"
#include "io/torch/torch_archive.hpp"

/// Readers of Megatron-LM's two checkpoint formats.
namespace trireme::io {

/// Returns whether a folder holds mp_rank_TT or mp_rank_TT_PPP.
bool has_rank_files(const std::string& folder);
MegatronCheckpoint open_rank_files(const std::string& folder);

/// Returns whether a folder holds a distributed checkpoint of torch.
bool has_distributed_files(const std::string& folder);
MegatronCheckpoint open_distributed_files(const std::string& folder);

/// Returns the order of queries, keys and values for the `checkpoint_version` of a saved dictionary; 0 if absent.
exchange::MegatronHeads heads_of_version(const PickleValue& saved, const std::string& path);

}  // namespace trireme::io
