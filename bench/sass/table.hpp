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
  int blocks = 0;        ///< at least as many run on a multiprocessor at once
  int stack_bytes = 0;   ///< at most; where it is 0, there are no accesses of local memory
  int wide_loads = 0;    ///< at least; 128 bits each
  int wide_stores = 0;   ///< at least
  int copies = 0;        ///< asynchronous ones into shared memory, at least; 128 bits each
  int shared_bytes = 0;  ///< dynamic shared memory of a block
  int inner_turns = 0;   ///< as in PathOptions
  int hmma = 0;          ///< exactly so many in a tile; 0: none at all
  int ldsm = 0;          ///< at most in a tile
  int tile = 0;          ///< instructions of a tile without dropout: at most
  int dropout_tile = 0;  ///< with it
  int products = 1;      ///< matrix products of a tile, scores and their gradients included
  int useful = 1;        ///< products that count; another kernel computes the others, too
  int arithmetic = 0;    ///< 1: the kernel computes more than it moves, and no share of a copy is printed
  std::string line;      ///< "FILE:LINE"
};

/// Returns the table's lines. `name` is the file's name in messages. Throws DisassemblyError with the line where one
/// cannot be read. The format is explained in the table itself.
std::vector<Expectation> read_table(std::istream& from, const std::string& name);

bool matches(const std::string& pattern, const std::string& name);

/// Returns the line of a kernel, the first that matches; null where there is none.
const Expectation* find_expectation(const std::vector<Expectation>& table, const Kernel& kernel);

/// Returns a message for each expectation that is not met: kernel, figure, limit, remedy. Kernels without a line and
/// lines without a kernel are faults, too.
std::vector<std::string> check(const std::vector<Expectation>& table, const std::vector<Kernel>& kernels);

}  // namespace trireme::sass
