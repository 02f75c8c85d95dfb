#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/posix/direct_io.hpp"
#include "io/posix/file.hpp"
#include "src/exchange/tensor_source.hpp"

namespace trireme::io {

/// A tensor of a safetensors file. Its bytes are [begin, end), counted from the end of the header.
struct SafetensorsEntry {
  exchange::ForeignTensor tensor;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Header of a safetensors file: a JSON object after its 64-bit length.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< in the order of their bytes
  std::map<std::string, std::string> metadata;
};

/// Limit of the JSON, that of the reference implementation.
inline constexpr std::int64_t max_safetensors_header_bytes = 100'000'000;
/// Bytes of the length before the JSON.
inline constexpr std::int64_t safetensors_length_bytes = 8;

/// Reads the JSON of a header in front of `data_bytes` of tensors. The input may be hostile. Throws DataError naming
/// `path` and the tensor unless every tensor has a unique name, a known type, a shape of at most five dimensions and
/// the matching size, and the tensors cover every byte exactly once. Unsupported integer types read as those of the
/// same width.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t data_bytes, const std::string& path);

/// Returns the header JSON of contiguous tensors in this order, padded with spaces to a multiple of 8 bytes. The
/// metadata come first.
std::string safetensors_header(const std::vector<exchange::ForeignTensor>& tensors,
                               const std::map<std::string, std::string>& metadata);

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
