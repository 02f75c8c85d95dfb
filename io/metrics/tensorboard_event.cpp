#include "io/metrics/tensorboard_event.hpp"

#include <array>
#include <bit>
#include <cstring>

namespace trireme::io {

namespace {

// protobuf.dev/programming-guides/encoding: a field is a tag (number and wire type), then a varint, 4 or 8 bytes, or a
// size and that many bytes.
enum WireType : std::uint64_t { varint = 0, fixed64 = 1, sized = 2, fixed32 = 5 };

void put_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
  to += static_cast<char>(value);
}

void put_tag(std::string& to, std::uint64_t field, WireType type) { put_varint(to, field << 3 | type); }

void put(std::string& to, std::uint64_t field, std::string_view bytes) {
  put_tag(to, field, sized);
  put_varint(to, bytes.size());
  to += bytes;
}

template <class T>
void put_fixed(std::string& to, std::uint64_t field, T value) {
  put_tag(to, field, sizeof value == 8 ? fixed64 : fixed32);
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// Field of a message.
struct Field {
  std::uint64_t number = 0;
  WireType type = varint;
  std::uint64_t value = 0;  // or its bits
  std::string_view bytes;   // if it has a size
};

/// Takes a varint off the front. Returns whether it is complete.
bool take_varint(std::string_view& from, std::uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !from.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(from.front());
    from.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

/// Takes a field off the front. Returns whether it is complete.
bool take_field(std::string_view& from, Field& field) {
  std::uint64_t tag = 0;
  if (!take_varint(from, tag)) return false;
  field = {};
  field.number = tag >> 3;
  field.type = static_cast<WireType>(tag & 7);
  if (field.type == varint) return take_varint(from, field.value);
  std::uint64_t size = field.type == fixed32 ? 4 : 8;
  if (field.type == sized && !take_varint(from, size)) return false;
  if ((field.type != sized && field.type != fixed32 && field.type != fixed64) || size > from.size()) return false;
  field.bytes = from.substr(0, size);
  if (field.type != sized) std::memcpy(&field.value, field.bytes.data(), size);
  from.remove_prefix(size);
  return true;
}

Scalar decode_scalar(std::string_view bytes) {
  Scalar scalar;
  for (Field field; take_field(bytes, field);) {
    if (field.number == 1) scalar.tag = field.bytes;
    if (field.number == 2) scalar.value = std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
  }
  return scalar;
}

void put_number(std::string& to, std::uint64_t field, std::uint64_t number) {
  put_tag(to, field, varint);
  put_varint(to, number);
}

std::string event_of(double wall_time_s, std::int64_t step, std::string_view summary) {
  std::string bytes;
  put_fixed(bytes, 1, wall_time_s);
  put_number(bytes, 2, static_cast<std::uint64_t>(step));
  put(bytes, 5, summary);
  return bytes;
}

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

std::string version_event(double wall_time_s) {
  std::string bytes;
  put_fixed(bytes, 1, wall_time_s);
  put(bytes, 3, "brain.Event:2");
  return bytes;
}

std::string encode(const ScalarEvent& event) {
  std::string summary;
  for (const Scalar& scalar : event.scalars) {
    std::string value;
    put(value, 1, scalar.tag);
    put_fixed(value, 2, static_cast<float>(scalar.value));
    put(summary, 1, value);
  }
  return event_of(event.wall_time_s, event.step, summary);
}

std::string encode(const TextEvent& event) {
  constexpr std::uint64_t string_type = 7, tensor_class = 2;
  std::string plugin, metadata, tensor, value, summary;
  put(plugin, 1, "text");
  put(metadata, 1, plugin);
  put_number(metadata, 4, tensor_class);
  put_number(tensor, 1, string_type);
  put(tensor, 8, event.text);
  put(value, 1, event.tag);
  put(value, 8, tensor);
  put(value, 9, metadata);
  put(summary, 1, value);
  return event_of(event.wall_time_s, event.step, summary);
}

ScalarEvent decode_event(std::string_view bytes) {
  ScalarEvent event;
  for (Field field; take_field(bytes, field);) {
    if (field.number == 1) event.wall_time_s = std::bit_cast<double>(field.value);
    if (field.number == 2) event.step = static_cast<std::int64_t>(field.value);
    if (field.number != 5) continue;
    for (Field value; take_field(field.bytes, value);) {
      if (value.number == 1) event.scalars.push_back(decode_scalar(value.bytes));
    }
  }
  return event;
}

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
