#pragma once

#include <map>
#include <string>
#include <vector>

#include "io/posix/file.hpp"
#include "io/posix/prefetcher.hpp"
#include "io/safetensors/safetensors_header.hpp"

namespace trireme::io {

/// A safetensors file, open for reading.
class SafetensorsFile {
 public:
  /// Reads and checks the header. IoError if the file cannot be read, DataError if it is damaged.
  explicit SafetensorsFile(std::string path);

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }
  /// Reads bytes from offset `begin` after the header.
  void read(std::int64_t begin, std::span<std::byte> out) const;
  /// Offset of the first byte after the header.
  std::int64_t data_offset() const { return data_offset_; }

 private:
  std::string path_;
  Descriptor file_;
  std::int64_t data_offset_ = 0;
  SafetensorsHeader header_;
};

/// Tensors of one safetensors file, or of several with their index.
class SafetensorsSource final : public exchange::TensorSource {
 public:
  /// `path` is a file, or a folder with model.safetensors.index.json or model.safetensors. An index and its files must
  /// name the same tensors, and lie in the same folder. Throws as SafetensorsFile.
  explicit SafetensorsSource(const std::string& path);

  std::string description() const override { return description_; }
  const std::vector<exchange::ForeignTensor>& tensors() const override { return tensors_; }
  void read(std::size_t tensor, std::int64_t first, std::span<std::byte> out) override;
  void prefetch(std::size_t tensor, std::int64_t first, std::int64_t count) override;

 private:
  struct Place {
    std::size_t file;
    std::int64_t begin;
  };
  void add_file(const std::string& path);
  void add_index(const std::string& folder, const std::string& path);
  std::string description_;
  std::vector<SafetensorsFile> files_;
  std::vector<exchange::ForeignTensor> tensors_;
  std::vector<Place> places_;
  Prefetcher prefetcher_;
};

/// Names of the files of a model in its folder.
inline constexpr const char* safetensors_name = "model.safetensors";
inline constexpr const char* safetensors_index_name = "model.safetensors.index.json";

}  // namespace trireme::io
