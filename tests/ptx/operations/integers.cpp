#include <algorithm>

#include "tests/ptx/operations/operations.hpp"

namespace trireme::ptx {
namespace {

/// An unsigned type of at least 32 bits, in which results wrap.
template <class T>
using Wrapping = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

/// All bits set if b is 0, as on GPUs; PTX leaves it undefined.
template <class T>
T quotient(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return static_cast<T>(-static_cast<Wrapping<T>>(a));
  }
  return static_cast<T>(a / b);
}

template <class T>
void add_arithmetic(OperationTable& table, const std::string& type) {
  using U = Wrapping<T>;
  add_comparisons<T>(table, type);
  table["min." + type] = mapped([](T a, T b) { return std::min(a, b); });
  table["max." + type] = mapped([](T a, T b) { return std::max(a, b); });
  table["add." + type] = mapped([](T a, T b) { return static_cast<T>(static_cast<U>(a) + static_cast<U>(b)); });
  table["sub." + type] = mapped([](T a, T b) { return static_cast<T>(static_cast<U>(a) - static_cast<U>(b)); });
  table["mul.lo." + type] = mapped([](T a, T b) { return static_cast<T>(static_cast<U>(a) * static_cast<U>(b)); });
  table["mad.lo." + type] =
      mapped([](T a, T b, T c) { return static_cast<T>(static_cast<U>(a) * static_cast<U>(b) + static_cast<U>(c)); });
  table["div." + type] = mapped([](T a, T b) { return quotient(a, b); });
  table["rem." + type] = mapped(
      [](T a, T b) { return static_cast<T>(static_cast<U>(a) - static_cast<U>(quotient(a, b)) * static_cast<U>(b)); });
  // Amounts beyond the width shift everything out.
  table["shr." + type] = mapped([](T a, std::uint32_t bits) {
    constexpr std::uint32_t width = 8 * sizeof(T);
    if (bits < width) return static_cast<T>(a >> bits);
    return static_cast<T>(a < 0 ? -1 : 0);
  });
  if constexpr (std::is_signed_v<T>) {
    table["neg." + type] = mapped([](T a) { return static_cast<T>(-static_cast<U>(a)); });
    table["abs." + type] = mapped([](T a) { return static_cast<T>(a < 0 ? -static_cast<U>(a) : static_cast<U>(a)); });
  }
}

template <class T, class Wide>
void add_wide_products(OperationTable& table, const std::string& type) {
  table["mul.hi." + type] =
      mapped([](T a, T b) { return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b) >> (8 * sizeof(T))); });
  if constexpr (sizeof(Wide) <= 8) {
    table["mul.wide." + type] = mapped([](T a, T b) { return static_cast<Wide>(Wide{a} * Wide{b}); });
    table["mad.wide." + type] = mapped([](T a, T b, Wide c) {
      return static_cast<Wide>(static_cast<std::uint64_t>(Wide{a} * Wide{b}) + static_cast<std::uint64_t>(c));
    });
  }
}

/// d = function(a, b, c, carry), of 64 bits: the low half is the result, bit 32 the carry to the next.
template <int sources, bool reads_carry, bool writes_carry, class F>
void run_with_carry(Warp& warp, const Instruction& instruction, Lanes lanes) {
  std::uint64_t* carry = warp.row(carry_row);
  for_lanes(lanes, [&](int lane) {
    std::uint64_t from[3]{};
    for (std::size_t i = 0; i < sources; ++i) {
      from[i] = static_cast<std::uint32_t>(warp.row(instruction.rows[i + 1])[lane]);
    }
    const std::uint64_t sum = F{}(from[0], from[1], from[2], reads_carry ? carry[lane] & 1 : 0);
    warp.row(instruction.rows[0])[lane] = static_cast<std::uint32_t>(sum);
    if (writes_carry) carry[lane] = sum >> 32 & 1;
  });
}
template <int sources, class F>
void add_with_carry(OperationTable& table, const std::string& first, const std::string& next, const std::string& part,
                    F) {
  table[first + part + ".cc.u32"] = {&run_with_carry<sources, false, true, F>, sources + 1};
  table[next + part + ".u32"] = {&run_with_carry<sources, true, false, F>, sources + 1};
  table[next + part + ".cc.u32"] = {&run_with_carry<sources, true, true, F>, sources + 1};
}

}  // namespace

void add_integer_operations(OperationTable& table) {
  add_arithmetic<std::int16_t>(table, "s16");
  add_arithmetic<std::uint16_t>(table, "u16");
  add_arithmetic<std::int32_t>(table, "s32");
  add_arithmetic<std::uint32_t>(table, "u32");
  add_arithmetic<std::int64_t>(table, "s64");
  add_arithmetic<std::uint64_t>(table, "u64");
  add_wide_products<std::int16_t, std::int32_t>(table, "s16");
  add_wide_products<std::uint16_t, std::uint32_t>(table, "u16");
  add_wide_products<std::int32_t, std::int64_t>(table, "s32");
  add_wide_products<std::uint32_t, std::uint64_t>(table, "u32");
  __extension__ using Int128 = __int128;
  __extension__ using UInt128 = unsigned __int128;
  add_wide_products<std::int64_t, Int128>(table, "s64");
  add_wide_products<std::uint64_t, UInt128>(table, "u64");

  using U = std::uint64_t;
  add_with_carry<2>(table, "add", "addc", "", [](U a, U b, U, U carry) { return a + b + carry; });
  add_with_carry<2>(table, "sub", "subc", "", [](U a, U b, U, U borrow) { return a - b - borrow; });
  add_with_carry<3>(table, "mad", "madc", ".lo",
                    [](U a, U b, U c, U carry) { return (a * b & 0xffffffff) + c + carry; });
  add_with_carry<3>(table, "mad", "madc", ".hi", [](U a, U b, U c, U carry) { return (a * b >> 32) + c + carry; });
}

}  // namespace trireme::ptx
