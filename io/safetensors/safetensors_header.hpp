#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace trireme::io
