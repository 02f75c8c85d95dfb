#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

// PTX, the assembly language to which nvcc compiles kernels, decoded for execution on the host.

namespace trireme::ptx {

/// Invalid PTX, or an error of a running kernel.
struct PtxError : std::logic_error {
  using std::logic_error::logic_error;
};

constexpr int warp_size = 32;
/// A set of a warp's lanes.
using Lanes = std::uint32_t;
constexpr Lanes all_lanes = ~Lanes{0};

/// Calls function(lane) for each of the lanes.
template <class Function>
void for_lanes(Lanes lanes, Function&& function) {
  if (lanes == all_lanes) {
#pragma GCC ivdep
    for (int lane = 0; lane < warp_size; ++lane) function(lane);
  } else {
    for (; lanes != 0; lanes &= lanes - 1) function(std::countr_zero(lanes));
  }
}

/// Address spaces. Addresses of `generic` encode their space (see cvta in
/// operations/memory.cpp).
enum class Space { generic, global, shared, local, parameter };

class Warp;
struct Instruction;
/// Executes an instruction for these lanes.
using Operation = void (*)(Warp& warp, const Instruction& instruction, Lanes lanes);

enum class Kind {
  plain,
  branch,
  exit,
  barrier,     ///< bar.sync
  collective,  ///< executed by lanes of a warp at the same time
  attempt,     ///< sets operand 0 to whether it succeeded; lanes without success repeat it
};

/// Largest number of registers and constants in an instruction: that of wgmma
/// with 64 columns.
constexpr int max_operands = 41;

/// Operands are rows of the warp's register file: one slot of 64 bits for each lane. Constants are rows, too.
struct Instruction {
  struct Address {
    int row = 0;
    std::int64_t offset = 0;
  };
  Operation run = nullptr;
  Kind kind = Kind::plain;
  Space space = Space::generic;
  bool negated = false;  ///< it runs where the guard is false
  int guard = -1;        ///< row of the predicate; -1: it always runs
  int target = 0;        ///< instruction that a branch goes to
  int mask = -1;         ///< row of a collective's mask of lanes; -1: all of them
  int line = 0;          ///< in the PTX
  std::string_view text;
  std::array<int, max_operands> rows{};
  std::array<Address, 2> addresses{};
};

/// Rows with a fixed meaning.
enum ReservedRow { carry_row, ignored_row, tid_row, ntid_row, ctaid_row, nctaid_row, lane_row, reserved_rows };

/// A decoded kernel.
struct Kernel {
  struct Parameter {
    std::size_t offset, size;
  };
  struct Constant {
    int row;
    std::uint64_t value;
  };
  std::string name;
  std::vector<Parameter> parameters;
  std::size_t parameter_bytes = 0;
  int max_threads = 1024;        ///< launch bound of a block
  std::size_t shared_bytes = 0;  ///< static; the dynamic follow
  std::size_t local_bytes = 0;   ///< local memory of a thread
  int rows = reserved_rows;
  std::vector<Constant> constants;
  std::vector<Instruction> code;
};

}  // namespace trireme::ptx
