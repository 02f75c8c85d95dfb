#pragma once

#include <memory>
#include <string>

#include "src/exchange/tensor_source.hpp"

namespace trireme::io {

/// Names of the files of a model that transformers saved by `torch.save`, in its folder.
inline constexpr const char* torch_weights_name = "pytorch_model.bin";
inline constexpr const char* torch_weights_index_name = "pytorch_model.bin.index.json";

/// Returns whether weights are in files of `torch.save`: a file of that kind, or a folder with one of these names and
/// without safetensors, which precede.
bool has_torch_weights(const std::string& path);

/// Opens the weights in such a file, each a dictionary of tensors, or in those of a folder. Buffers are left out.
/// Throws IoError, or DataError if a file is damaged, or an index and its files do not name the same tensors.
std::unique_ptr<exchange::TensorSource> open_torch_weights(const std::string& path);

}  // namespace trireme::io
