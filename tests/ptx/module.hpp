#pragma once

#include <map>

#include "tests/ptx/instruction.hpp"

namespace trireme::ptx {

/// A variable of PTX: `.shared .align 16 .b8 name[64]`.
struct Variable {
  std::string_view name;
  Space space = Space::global;
  std::size_t alignment = 1, size = 0, element_bytes = 1;
  bool is_dynamic = false;  ///< `name[]`: the launch gives the size
};

/// A kernel or function as text.
struct Function {
  std::string_view name, body;
  int line = 0;  ///< first line of the body
  bool is_kernel = false;
  std::vector<Variable> results, parameters;
  int max_threads = 1024;
};

/// Output of nvcc for one source file. Kernels are decoded on demand. Throws PtxError, which names line and text of
/// invalid PTX.
class Module {
 public:
  explicit Module(std::string text);
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  std::vector<std::string> kernel_names() const;
  bool has(const std::string& kernel) const { return functions_.contains(kernel) && functions_.at(kernel).is_kernel; }
  /// Throws PtxError if there is no such kernel.
  const Kernel& kernel(const std::string& name);
  const std::string& text() const { return text_; }

  // For the decoder.
  const Function* function(std::string_view name) const;
  const Variable* variable(std::string_view name) const;
  /// Returns the contents of a variable in global memory, or null.
  const std::vector<std::byte>* global(std::string_view name) const;
  /// Returns the variable in global memory that contains `address`, or null.
  const std::vector<std::byte>* global_at(std::uintptr_t address) const;

 private:
  void parse();
  void declare(std::string_view declaration);

  std::string text_;
  std::map<std::string, Function, std::less<>> functions_;
  std::map<std::string, Variable, std::less<>> variables_;
  std::map<std::string, std::vector<std::byte>, std::less<>> globals_;
  std::map<std::string, Kernel, std::less<>> kernels_;
};

/// Decodes a kernel; the functions that it calls become part of it. Throws PtxError, which names line and text, for an
/// unknown instruction or unsupported operands.
Kernel decode(const Module& module, const Function& kernel);

}  // namespace trireme::ptx
