#include "tests/ptx/fat_binary.hpp"

#include <fmt/format.h>
#include <zstd.h>

#include <cstring>

#include "tests/ptx/instruction.hpp"

// The format is not documented. These fields are those of CUDA 12.4 to 13.0.

namespace trireme::ptx {
namespace {

struct Header {
  std::uint32_t magic;
  std::uint16_t version, header_bytes;
  std::uint64_t size_bytes;  // size of the entries behind the header
};
constexpr std::uint32_t header_magic = 0xba55ed50;
struct Entry {
  std::uint16_t kind, version;
  std::uint32_t header_bytes;
  std::uint64_t padded_bytes;
  std::uint32_t compressed_bytes;  // 0: it is not compressed
};
constexpr std::uint16_t ptx_kind = 1;

template <class T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

std::string decompressed(const std::byte* data, std::size_t size_bytes) {
  const unsigned long long size = ZSTD_getFrameContentSize(data, size_bytes);
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN) {
    throw PtxError("the PTX of an object is not compressed by zstd. Compile it with -Xfatbin -compress-mode=none");
  }
  std::string text(size, '\0');
  if (ZSTD_isError(ZSTD_decompress(text.data(), text.size(), data, size_bytes)) != 0) {
    throw PtxError("the PTX of an object cannot be decompressed");
  }
  return text;
}

}  // namespace

std::string ptx_of_fat_binary(const void* fat_binary) {
  const auto* at = static_cast<const std::byte*>(fat_binary);
  const auto header = read<Header>(at);
  if (header.magic != header_magic) throw PtxError(fmt::format("no fat binary: it begins with {:#x}", header.magic));
  at += header.header_bytes;
  for (const std::byte* const end = at + header.size_bytes; at < end;) {
    const auto entry = read<Entry>(at);
    const std::byte* const data = at + entry.header_bytes;
    if (entry.kind == ptx_kind) {
      if (entry.compressed_bytes > 0) return decompressed(data, entry.compressed_bytes);
      std::string text(reinterpret_cast<const char*>(data), entry.padded_bytes);
      return text.substr(0, text.find('\0'));
    }
    at = data + entry.padded_bytes;
  }
  throw PtxError("an object of CUDA kernels has no PTX in it: compile it for a virtual architecture, too");
}

}  // namespace trireme::ptx
