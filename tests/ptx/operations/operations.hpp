#pragma once

#include <type_traits>
#include <unordered_map>
#include <utility>

#include "tests/ptx/warp.hpp"

namespace trireme::ptx {

/// How an instruction is executed, and its number of operands other than addresses.
struct OperationEntry {
  Operation run = nullptr;
  int operands = 0;
  int addresses = 0;
  Kind kind = Kind::plain;
  bool has_mask = false;  ///< the last operand is a mask of lanes
};
/// Operations by opcode with suffixes: "add.s32". Loads and stores have no suffix of an address space here.
using OperationTable = std::unordered_map<std::string, OperationEntry>;

const OperationTable& operations();

// The families of operations, each in its own file.
void add_integer_operations(OperationTable& table);
void add_bit_operations(OperationTable& table);
void add_float_operations(OperationTable& table);
void add_conversions(OperationTable& table);
void add_memory_operations(OperationTable& table);
void add_warp_operations(OperationTable& table);
void add_warp_group_operations(OperationTable& table);

// Operations that do the same for each lane, made from functions of the operands' values.

/// The value of type T in a slot of a register.
template <class T>
T value_of(std::uint64_t slot) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(slot));
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<double>(slot);
  } else if constexpr (std::is_same_v<T, bool>) {
    return (slot & 1) != 0;
  } else {
    return static_cast<T>(slot);
  }
}
/// The slot that holds a value; signed integers are extended.
template <class T>
std::uint64_t slot_of(T value) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<std::uint32_t>(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<std::uint64_t>(value);
  } else {
    return static_cast<std::uint64_t>(value);
  }
}

template <class F, class Signature = decltype(&F::operator())>
struct Mapped;
template <class F, class Result, class... Arguments>
struct Mapped<F, Result (F::*)(Arguments...) const> {
  static constexpr int operands = 1 + sizeof...(Arguments);
  static void run(Warp& warp, const Instruction& instruction, Lanes lanes) {
    run(warp, instruction, lanes, std::index_sequence_for<Arguments...>{});
  }

 private:
  template <std::size_t... i>
  static void run(Warp& warp, const Instruction& instruction, Lanes lanes, std::index_sequence<i...>) {
    std::uint64_t* to = warp.row(instruction.rows[0]);
    [[maybe_unused]] const std::array<const std::uint64_t*, sizeof...(i)> from{warp.row(instruction.rows[i + 1])...};
    for_lanes(lanes, [&](int lane) { to[lane] = slot_of<Result>(F{}(value_of<Arguments>(from[i][lane])...)); });
  }
};
/// Operation: operand 0 = function(operands 1, 2 ...), for a function without state.
template <class F>
OperationEntry mapped(F) {
  return {&Mapped<F>::run, Mapped<F>::operands};
}

/// Comparisons, selection and moves of one type.
template <class T>
void add_comparisons(OperationTable& table, const std::string& type) {
  table["setp.eq." + type] = mapped([](T a, T b) { return a == b; });
  table["setp.ne." + type] = mapped([](T a, T b) { return a < b || a > b; });
  table["setp.lt." + type] = mapped([](T a, T b) { return a < b; });
  table["setp.le." + type] = mapped([](T a, T b) { return a <= b; });
  table["setp.gt." + type] = mapped([](T a, T b) { return a > b; });
  table["setp.ge." + type] = mapped([](T a, T b) { return a >= b; });
  table["selp." + type] = mapped([](T a, T b, bool first) { return first ? a : b; });
  table["mov." + type] = mapped([](T a) { return a; });
}

}  // namespace trireme::ptx
