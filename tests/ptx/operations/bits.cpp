#include "tests/ptx/operations/operations.hpp"

namespace trireme::ptx {
namespace {

template <class T>
void add_bits(OperationTable& table, const std::string& type) {
  table["and." + type] = mapped([](T a, T b) { return static_cast<T>(a & b); });
  table["or." + type] = mapped([](T a, T b) { return static_cast<T>(a | b); });
  table["xor." + type] = mapped([](T a, T b) { return static_cast<T>(a ^ b); });
  table["mov." + type] = mapped([](T a) { return a; });
  if constexpr (std::is_same_v<T, bool>) {
    table["not." + type] = mapped([](T a) { return !a; });
  } else {
    table["not." + type] = mapped([](T a) { return static_cast<T>(~a); });
    table["shl." + type] = mapped(
        [](T a, std::uint32_t bits) { return static_cast<T>(bits < 8 * sizeof(T) ? std::uint64_t{a} << bits : 0); });
    table["shr." + type] =
        mapped([](T a, std::uint32_t bits) { return static_cast<T>(bits < 8 * sizeof(T) ? a >> bits : 0); });
    table["setp.eq." + type] = mapped([](T a, T b) { return a == b; });
    table["setp.ne." + type] = mapped([](T a, T b) { return a != b; });
    table["selp." + type] = mapped([](T a, T b, bool first) { return first ? a : b; });
  }
}
template <class T>
void add_counts(OperationTable& table, const std::string& type) {
  table["popc." + type] = mapped([](T a) { return static_cast<std::uint32_t>(std::popcount(a)); });
  table["clz." + type] = mapped([](T a) { return static_cast<std::uint32_t>(std::countl_zero(a)); });
  table["brev." + type] = mapped([](T a) {
    T reversed = 0;
    for (std::size_t i = 0; i < 8 * sizeof(T); ++i) reversed |= (a >> i & 1) << (8 * sizeof(T) - 1 - i);
    return reversed;
  });
}

/// Bits [begin, begin + count) of `into` become the lowest of `bits`.
template <class T>
T insert_bits(T bits, T into, std::uint32_t begin, std::uint32_t count) {
  constexpr std::uint32_t size = 8 * sizeof(T);
  begin &= 0xff;
  count &= 0xff;
  if (begin >= size || count == 0) return into;
  const T mask = (count >= size ? ~T{0} : (T{1} << count) - 1) << begin;
  return (into & ~mask) | (bits << begin & mask);
}
template <class T>
void add_insertion(OperationTable& table, const std::string& type) {
  table["bfi." + type] =
      mapped([](T a, T b, std::uint32_t begin, std::uint32_t count) { return insert_bits<T>(a, b, begin, count); });
}

/// Byte i is the one of a and b that nibble i of the selector names; its sign in all bits where bit 3 of the nibble is
/// set.
std::uint32_t permuted_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  std::uint8_t source[8];
  for (int i = 0; i < 4; ++i) {
    source[i] = static_cast<std::uint8_t>(a >> 8 * i);
    source[4 + i] = static_cast<std::uint8_t>(b >> 8 * i);
  }
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i, selector >>= 4) {
    std::uint8_t byte = source[selector & 7];
    if ((selector & 8) != 0) byte = byte >= 0x80 ? 0xff : 0;
    result |= std::uint32_t{byte} << 8 * i;
  }
  return result;
}

/// mov of a register with 32 or 64 bits into `count` of equal size.
template <int count, class Part>
void unpack(Warp& warp, const Instruction& instruction, Lanes lanes) {
  for_lanes(lanes, [&](int lane) {
    const std::uint64_t whole = warp.row(instruction.rows[count])[lane];
    for (std::size_t i = 0; i < count; ++i) {
      warp.row(instruction.rows[i])[lane] = static_cast<Part>(whole >> 8 * sizeof(Part) * i);
    }
  });
}
template <int count, class Part>
void pack(Warp& warp, const Instruction& instruction, Lanes lanes) {
  for_lanes(lanes, [&](int lane) {
    std::uint64_t whole = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto part = static_cast<Part>(warp.row(instruction.rows[i + 1])[lane]);
      whole |= std::uint64_t{part} << 8 * sizeof(Part) * i;
    }
    warp.row(instruction.rows[0])[lane] = whole;
  });
}

}  // namespace

void add_bit_operations(OperationTable& table) {
  add_bits<bool>(table, "pred");
  add_bits<std::uint16_t>(table, "b16");
  add_bits<std::uint32_t>(table, "b32");
  add_bits<std::uint64_t>(table, "b64");
  add_counts<std::uint32_t>(table, "b32");
  add_counts<std::uint64_t>(table, "b64");
  // Left shift that brings the highest set bit to the top; all bits set if none is set.
  table["bfind.shiftamt.u32"] =
      mapped([](std::uint32_t a) { return a == 0 ? ~0U : static_cast<std::uint32_t>(std::countl_zero(a)); });
  // Upper half of b:a, shifted left by the amount modulo 32.
  table["shf.l.wrap.b32"] = mapped([](std::uint32_t a, std::uint32_t b, std::uint32_t bits) {
    return static_cast<std::uint32_t>((std::uint64_t{b} << 32 | a) << bits % 32 >> 32);
  });
  add_insertion<std::uint32_t>(table, "b32");
  add_insertion<std::uint64_t>(table, "b64");
  table["prmt.b32"] =
      mapped([](std::uint32_t a, std::uint32_t b, std::uint32_t selector) { return permuted_bytes(a, b, selector); });
  table["unpack.2.b32"] = {&unpack<2, std::uint16_t>, 3};
  table["unpack.2.b64"] = {&unpack<2, std::uint32_t>, 3};
  table["unpack.4.b64"] = {&unpack<4, std::uint16_t>, 5};
  table["pack.2.b32"] = {&pack<2, std::uint16_t>, 3};
  table["pack.2.b64"] = {&pack<2, std::uint32_t>, 3};
  table["pack.4.b64"] = {&pack<4, std::uint16_t>, 5};
}

}  // namespace trireme::ptx
