#pragma once

#include <memory>
#include <string>

#include "io/megatron/megatron_arguments.hpp"
#include "io/torch/chunked_source.hpp"

namespace trireme::io {

/// Weights of a checkpoint of Megatron-LM.
struct MegatronCheckpoint {
  std::unique_ptr<exchange::TensorSource> source;
  MegatronModel model;
  exchange::MegatronLayout layout;
};

/// Opens a checkpoint of Megatron-LM: the latest one in the folder of --save, or one of its folders (iter_N, release).
/// Reads the formats `torch` (mp_rank_TT_PPP, of any version since 2019) and `torch_dist`. Joins shards of tensor ranks
/// and layers of pipeline ranks; ignores optimizers and random states. Executes nothing in the files. IoError if files
/// cannot be read, DataError if they are damaged or of an unsupported model.
MegatronCheckpoint open_megatron_checkpoint(const std::string& path);

}  // namespace trireme::io
