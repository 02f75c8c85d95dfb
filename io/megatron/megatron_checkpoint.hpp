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

/// Opens a checkpoint of Megatron-LM: the folder of --save, whose latest one is read, or one of its folders (iter_N,
/// release). Reads the formats `torch` (mp_rank_TT_PPP, of any version since 2019) and `torch_dist`. Shards of tensor
/// ranks and layers of pipeline ranks are joined; optimizers and random states are left alone. No Python runs, and
/// nothing in the files is executed. IoError if files cannot be read, DataError if they are damaged or of a model
/// that is not known here.
MegatronCheckpoint open_megatron_checkpoint(const std::string& path);

}  // namespace trireme::io
