#pragma once

#include <string>
#include <vector>

#include "io/posix/file.hpp"
#include "src/exchange/tensor_source.hpp"
#include "src/model/model_config.hpp"

namespace trireme::io {

/// A model file of llm.c: 256 int32, then the tensors of `exchange::llmc_tensor_map`, all fp32 (version 3) or all bf16
/// (version 5). The numbers are: magic 20240326, version, positions, tokens, layers, heads, hidden size, and rows of
/// the token embedding. The models are GPT-2s.
class LlmcSource final : public exchange::TensorSource {
 public:
  /// Throws IoError if the file cannot be read, DataError if it is of another kind or version, damaged, or its size
  /// does not match its tensors.
  explicit LlmcSource(std::string path);

  /// Shape stated by the file; the vocabulary without padding.
  const model::ModelConfig& config() const { return config_; }
  std::int64_t padded_vocabulary() const { return padded_vocabulary_; }

  std::string description() const override { return path_; }
  const std::vector<exchange::ForeignTensor>& tensors() const override { return tensors_; }
  void read(std::size_t tensor, std::int64_t first, std::span<std::byte> out) override;

 private:
  std::string path_;
  Descriptor file_;
  model::ModelConfig config_;
  std::int64_t padded_vocabulary_ = 0;
  std::vector<exchange::ForeignTensor> tensors_;
  std::vector<std::int64_t> begins_;  // byte of each tensor
};

}  // namespace trireme::io
