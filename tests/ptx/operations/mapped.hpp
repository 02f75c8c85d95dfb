#pragma once

#include <type_traits>
#include <utility>

#include "tests/ptx/operations/operations.hpp"
#include "tests/ptx/warp.hpp"

// Operations that do the same for each lane: from functions of the operands' values.

namespace trireme::ptx {

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

}  // namespace trireme::ptx
