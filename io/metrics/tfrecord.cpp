#include "io/metrics/tfrecord.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace trireme::io {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint32_t castagnoli = 0x82f63b78;  // the polynomial, bits reversed

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? castagnoli : 0);
    table[byte] = crc;
  }
  return table;
}

std::uint32_t masked_crc(std::string_view data) {
  static constexpr std::array<std::uint32_t, 256> table = crc_table();
  std::uint32_t crc = ~0u;
  for (const char byte : data) crc = crc >> 8 ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  return std::rotr(~crc, 15) + 0xa282ead8;
}

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// Reads a number at `offset`, which must be in bounds.
template <class T>
T number_at(std::string_view content, std::size_t offset) {
  T value;
  std::memcpy(&value, content.data() + offset, sizeof value);
  return value;
}

constexpr std::size_t head_bytes = 12, foot_bytes = 4;

}  // namespace

std::string tfrecord(std::string_view data) {
  const auto size = static_cast<std::uint64_t>(data.size());
  std::string record;
  record += bytes_of(size);
  record += bytes_of(masked_crc(bytes_of(size)));
  record += data;
  record += bytes_of(masked_crc(data));
  return record;
}

std::optional<std::string_view> next_tfrecord(std::string_view content, std::size_t& offset) {
  const std::string_view rest = content.substr(offset);
  if (rest.size() < head_bytes + foot_bytes) return {};
  const auto size = number_at<std::uint64_t>(rest, 0);
  if (number_at<std::uint32_t>(rest, sizeof size) != masked_crc(rest.substr(0, sizeof size))) return {};
  if (size > rest.size() - head_bytes - foot_bytes) return {};
  const std::string_view data = rest.substr(head_bytes, size);
  if (number_at<std::uint32_t>(rest, head_bytes + size) != masked_crc(data)) return {};
  offset += head_bytes + size + foot_bytes;
  return data;
}

}  // namespace trireme::io
