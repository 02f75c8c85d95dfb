#include "src/data/text/container_format.hpp"

#include <algorithm>

#include "src/base/check.hpp"

namespace trireme::data {
namespace {

using namespace std::string_view_literals;

constexpr const char* to_lines = "convert it to JSON lines";
constexpr const char* repack = "unpack it, or pack it again with gzip or zstd";
constexpr const char* unpack = "unpack it and name the files in it";
constexpr const char* unpack_first = "unpack it first, once more where it was packed twice";
constexpr const char* to_text = "convert it to text";

struct Container {
  std::string_view magic;
  const char* name;
  const char* remedy;
  std::size_t at = 0;  ///< first byte of the magic
};

constexpr Container containers[] = {
    {"PAR1"sv, "Parquet", to_lines},
    {"PARE"sv, "encrypted Parquet", to_lines},
    {"ARROW1"sv, "Arrow or Feather", to_lines},
    {"\xFF\xFF\xFF\xFF"sv, "an Arrow stream", to_lines},
    {"FEA1"sv, "Feather", to_lines},
    {"ORC"sv, "ORC", to_lines},
    {"Obj\x01"sv, "Avro", to_lines},
    {"SQLite format 3\0"sv, "an SQLite database", to_lines},
    {"\x89HDF\r\n\x1A\n"sv, "HDF5", "convert it to text, or, where it is a corpus, give it to trireme corpus merge"},
    {"\x93NUMPY"sv, "a NumPy array", to_text},
    {"%PDF-"sv, "PDF", to_text},
    {"BZh"sv, "bzip2", repack},
    {"\xFD"
     "7zXZ\0"sv,
     "xz", repack},
    {"LZIP"sv, "lzip", repack},
    {"\x04\x22\x4D\x18"sv, "lz4", repack},
    {"\xFF\x06\0\0sNaPpY"sv, "snappy", repack},
    {"\x1F\x9D"sv, "compress", repack},
    {"\x1F\x8B"sv, "gzip", unpack_first},
    {"\x28\xB5\x2F\xFD"sv, "Zstandard", unpack_first},
    {"PK\x03\x04"sv, "zip", unpack},
    {"PK\x05\x06"sv, "zip", unpack},
    {"PK\x07\x08"sv, "zip", unpack},
    {"7z\xBC\xAF\x27\x1C"sv, "7z", unpack},
    {"Rar!\x1A\x07"sv, "RAR", unpack},
    {"ustar"sv, "tar", unpack, 257},
};

/// Bytes that occur in no text, but near the beginning of every container. Without them a text may begin with any
/// signature.
bool is_control(char byte) {
  const auto value = static_cast<unsigned char>(byte);
  return value < 0x08 || (value > 0x0D && value < 0x20 && value != 0x1B);
}

}  // namespace

void check_is_text(const std::string& path, std::string_view head) {
  if (std::ranges::none_of(head, is_control)) return;
  for (const Container& container : containers) {
    if (head.size() < container.at || !head.substr(container.at).starts_with(container.magic)) continue;
    throw DataError("{} is not text, its first bytes are those of {}: {}", path, container.name, container.remedy);
  }
}

}  // namespace trireme::data
