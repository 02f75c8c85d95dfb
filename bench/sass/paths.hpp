#pragma once

#include "bench/sass/disassembly.hpp"

namespace trireme::sass {

/// Instruction counts of a warp's path through a kernel, or of one loop iteration.
struct Counts {
  double instructions = 0;  ///< all of them
  double hmma = 0, ldsm = 0;
  double hgmma = 0;   ///< products of warp groups
  double copies = 0;  ///< asynchronous ones into shared memory
  double wide = 0;    ///< 128-bit loads and stores in global memory, excluding asynchronous copies
};

/// Choice of a path.
struct PathOptions {
  enum class Dropout { none, drawn, read };
  Dropout dropout = Dropout::none;  ///< through the draws of Philox, or through loads of masks, or around both
  /// 0: the smallest loop that has most of the work. Otherwise the next loop around it, of which each turn makes as
  /// many turns of the smallest.
  int inner_turns = 0;
};

/// Counts of the hot path. Work are products of tensor cores and copies, or else wide loads and stores. The path has
/// maximal work and, among those, the fewest instructions: no masks, no partial vectors, no dropout unless requested.
/// If a loop has most of the kernel's work, the path is one iteration of it; else it leads from start to end. Excludes
/// called functions (64-bit divisions).
Counts hot_path(const Kernel& kernel, const PathOptions& options = {});

/// Counts the kernel's instructions whose opcode begins with `opcode` and contains `part`.
int count_of(const Kernel& kernel, const std::string& opcode, const std::string& part = "");

}  // namespace trireme::sass
