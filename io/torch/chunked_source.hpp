#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/torch/torch_archive.hpp"
#include "src/exchange/tensor_source.hpp"

namespace trireme::io {

/// A rectangular part of a tensor and its elements, row-major.
struct TensorChunk {
  Box box;
  std::span<const std::byte> bytes;
  std::shared_ptr<StoredBytes> storage = nullptr;  ///< holds `bytes`
};

/// Tensors in memory, each joined from parts sharded over ranks. The first read of a part checks its storage.
class ChunkedSource final : public exchange::TensorSource {
 public:
  /// `files` hold the bytes of the parts.
  ChunkedSource(std::string description, std::vector<std::shared_ptr<const void>> files)
      : description_(std::move(description)), files_(std::move(files)) {}

  /// Adds a tensor, whose name must be new. Equal parts count as one. DataError unless the parts cover each element
  /// exactly once and match their boxes in size.
  void add(exchange::ForeignTensor tensor, std::vector<TensorChunk> chunks);

  std::string description() const override { return description_; }
  const std::vector<exchange::ForeignTensor>& tensors() const override { return tensors_; }
  void read(std::size_t tensor, std::int64_t first, std::span<std::byte> out) override;

 private:
  std::string description_;
  std::vector<std::shared_ptr<const void>> files_;
  std::vector<exchange::ForeignTensor> tensors_;
  std::vector<std::vector<TensorChunk>> chunks_;  // by tensor
};

}  // namespace trireme::io
