#pragma once

#include "bench/sass/disassembly.hpp"

namespace trireme::sass {

/// Instructions of a path that a warp takes through a kernel, or one turn of a loop.
struct Counts {
  double instructions = 0;  ///< all of them: one issue slot each
  double hmma = 0, ldsm = 0;
  double copies = 0;             ///< asynchronous ones into shared memory
  double shared_wavefronts = 0;  ///< passes of 128 bytes through shared memory, without bank conflicts
  double special = 0;            ///< special functions: MUFU
  double wide = 0;               ///< loads and stores of 128 bits in global memory, asynchronous copies left out
  double lane_bytes = 0;         ///< bytes that a thread loads and stores in global memory
  double loaded_bytes = 0;       ///< bytes that it loads
  bool loops = false;            ///< it is a turn of a loop
};

/// Choice of a path.
struct PathOptions {
  bool dropout = false;  ///< through the draws of Philox; otherwise around them
  /// 0: the smallest loop that has most of the work. Otherwise the next loop around it, of which each turn makes as
  /// many turns of the smallest.
  int inner_turns = 0;
};

/// Counts of the hot path. Work are products of tensor cores and copies, or else wide loads and stores. The path meets
/// as much work as any, and has the fewest instructions of those that do: no masks, no partial vectors, no dropout
/// unless asked for. Where a loop has most of the kernel's work, the path is one turn of it; else it leads from the
/// begin to the end. Called functions (64-bit divisions) are not counted.
Counts hot_path(const Kernel& kernel, const PathOptions& options = {});

/// Returns how many instructions of the kernel have an opcode that begins with `opcode` and contains `part`.
int count_of(const Kernel& kernel, const std::string& opcode, const std::string& part = "");

}  // namespace trireme::sass
