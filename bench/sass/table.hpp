#pragma once

#include <istream>
#include <string>
#include <vector>

#include "bench/sass/paths.hpp"

namespace trireme::sass {

/// Line of the table of expectations: the machine code of a family of kernels, by design.
struct Expectation {
  std::string pattern;   ///< pattern of short names; '*' stands for any characters
  int threads = 0;       ///< threads of a block
  int blocks = 0;        ///< minimum resident blocks per multiprocessor
  int stack_bytes = 0;   ///< at most; 0: no local memory accesses
  int wide_loads = 0;    ///< at least; 128 bits each
  int wide_stores = 0;   ///< at least
  int copies = 0;        ///< asynchronous ones into shared memory, at least; 128 bits each
  int shared_bytes = 0;  ///< dynamic shared memory of a block
  int inner_turns = 0;   ///< as in PathOptions
  int hmma = 0;          ///< exact number per tile; 0: none at all
  int hgmma = 0;         ///< likewise
  int ldsm = 0;          ///< at most in a tile
  int tile = 0;          ///< instructions of a tile without dropout: at most
  int dropout_tile = 0;  ///< with it
  int kept_tile = 0;     ///< with masks that are read; 0: there are none
  std::string line;      ///< "FILE:LINE"
};

/// Returns the table's lines. `name` is the file's name in messages. Throws DisassemblyError naming an unreadable line.
/// The table itself documents the format.
std::vector<Expectation> read_table(std::istream& from, const std::string& name);

bool matches(const std::string& pattern, const std::string& name);

/// Returns a message per unmet expectation: kernel, figure, limit, remedy. The first line that matches a kernel holds.
/// Kernels without a line and lines without a
/// kernel are also faults.
std::vector<std::string> check(const std::vector<Expectation>& table, const std::vector<Kernel>& kernels);

}  // namespace trireme::sass
