#pragma once

#include <unordered_map>

#include "tests/ptx/instruction.hpp"

namespace trireme::ptx {

/// How an instruction is executed, and its number of operands beside addresses.
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

// The families of operations, each in a file of its own.
void add_integer_operations(OperationTable& table);
void add_bit_operations(OperationTable& table);
void add_float_operations(OperationTable& table);
void add_conversions(OperationTable& table);
void add_memory_operations(OperationTable& table);
void add_warp_operations(OperationTable& table);

}  // namespace trireme::ptx
