#pragma once

#include <cstdint>
#include <istream>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace trireme::sass {

/// Instruction of machine code, as `cuobjdump -sass` prints it.
struct Instruction {
  std::int64_t address = 0;
  bool predicated = false;  ///< some threads may skip it
  std::string opcode;       ///< with its modifiers: "LDG.E.128"
  std::string operands;
};

/// Compiled kernel.
struct Kernel {
  std::string symbol;  ///< mangled name
  std::string name;    ///< demangled, without namespaces and parameters: "adamw_kernel<bf16>"
  int registers = 0;
  int stack_bytes = 0;
  int shared_bytes = 0;            ///< static shared memory, plus 1 KiB for the system if any is used
  std::optional<int> max_threads;  ///< launch bounds, 0 without them; not known without PTX
  std::vector<Instruction> code;
};

/// Output of cuobjdump without the expected parts.
class DisassemblyError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Returns the architectures of compute capability 9.0 ("sm_90", "sm_90a") in the output of `cuobjdump -res-usage`.
/// Kernels of features that only 9.0 has are compiled for the second alone.
std::set<std::string> architectures_of(std::istream& resources);

/// Returns the kernels of one architecture in file order, from the outputs of `cuobjdump -res-usage` and
/// `cuobjdump -sass`. Throws DisassemblyError if they do not fit together.
std::vector<Kernel> read_kernels(std::istream& resources, std::istream& code, const std::string& architecture);

/// Sets `max_threads` of kernels from the output of `cuobjdump -ptx`.
void read_launch_bounds(std::istream& ptx, std::vector<Kernel>& kernels);

/// "adamw_kernel<bf16>" of the mangled name or of the demangled one.
std::string short_name(const std::string& symbol);

}  // namespace trireme::sass
