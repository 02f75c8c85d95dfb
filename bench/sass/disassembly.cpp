#include "bench/sass/disassembly.hpp"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string_view>

namespace trireme::sass {
namespace {

std::string demangled(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status),
                                                    std::free);
  return status == 0 ? name.get() : symbol;
}

void remove_all(std::string& text, std::string_view part) {
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos;) text.erase(at, part.size());
}

/// Returns the number after `key`, as in "REG:40".
int number_after(const std::string& line, std::string_view key) {
  const std::size_t at = line.find(key);
  if (at == std::string::npos) throw DisassemblyError(fmt::format("no '{}' in the line '{}'", key, line));
  return std::atoi(line.c_str() + at + key.size());
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t"), end = text.find_last_not_of(" \t");
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin, end - begin + 1);
}

/// Reads " /*0130*/ @!P0 LDG.E.128 R4, desc[UR4][R2.64] ; /* 0x... */". Returns false for any other line, such as an
/// instruction's second half.
bool read_instruction(std::string_view line, Instruction& to) {
  line = trimmed(line);
  const std::size_t comment = line.find("*/"), end = line.find(';');
  if (!line.starts_with("/*") || comment == std::string_view::npos || end == std::string_view::npos) return false;
  if (std::from_chars(line.data() + 2, line.data() + comment, to.address, 16).ptr != line.data() + comment)
    return false;
  std::string_view text = trimmed(line.substr(comment + 2, end - comment - 2));
  to.predicated = text.starts_with('@');
  if (to.predicated) text = trimmed(text.substr(std::min(text.find(' '), text.size())));
  const std::size_t space = std::min(text.find(' '), text.size());
  to.opcode = text.substr(0, space);
  to.operands = trimmed(text.substr(space));
  return !to.opcode.empty();
}

/// Calls `use(line)` for each line below "arch = `architecture`", up to the next architecture.
template <class Line>
void lines_of(std::istream& from, const std::string& architecture, const Line& use) {
  bool chosen = false;
  for (std::string line; std::getline(from, line);) {
    if (line.starts_with("arch = ")) {
      chosen = line == "arch = " + architecture;
    } else if (chosen) {
      use(line);
    }
  }
}

}  // namespace

std::string short_name(const std::string& symbol) {
  std::string name = demangled(symbol);
  if (name.starts_with("void ")) name.erase(0, 5);
  for (const char* part : {"(anonymous namespace)::", "trireme::cuda::", "trireme::"}) remove_all(name, part);
  return name.substr(0, name.find('('));
}

std::set<std::string> architectures_of(std::istream& resources) {
  std::set<std::string> found;
  for (std::string line; std::getline(resources, line);) {
    if (line == "arch = sm_90" || line == "arch = sm_90a") found.insert(line.substr(7));
  }
  return found;
}

std::vector<Kernel> read_kernels(std::istream& resources, std::istream& code, const std::string& architecture) {
  std::map<std::string, Kernel> by_symbol;
  Kernel* kernel = nullptr;
  lines_of(resources, architecture, [&](const std::string& line) {
    if (const std::size_t at = line.find("Function "); at != std::string::npos) {
      const std::string symbol = line.substr(at + 9, line.find_last_of(':') - at - 9);
      kernel = &by_symbol[symbol];
      kernel->symbol = symbol;
      kernel->name = short_name(symbol);
    } else if (kernel != nullptr && line.find("REG:") != std::string::npos) {
      kernel->registers = number_after(line, "REG:");
      kernel->stack_bytes = number_after(line, "STACK:");
      kernel->shared_bytes = number_after(line, "SHARED:");
      kernel = nullptr;
    }
  });
  std::vector<Kernel> kernels;
  std::set<std::string> seen;  // a kernel in a header is compiled into several objects
  bool is_new = false;
  lines_of(code, architecture, [&](const std::string& line) {
    if (const std::size_t at = line.find("Function : "); at != std::string::npos) {
      const std::string symbol = line.substr(at + 11);
      if (!by_symbol.contains(symbol)) {
        throw DisassemblyError(fmt::format("cuobjdump prints code of {}, but not its registers", symbol));
      }
      is_new = seen.insert(symbol).second;
      if (is_new) kernels.push_back(by_symbol[symbol]);
    } else if (Instruction instruction; is_new && read_instruction(line, instruction)) {
      kernels.back().code.push_back(std::move(instruction));
    }
  });
  for (const Kernel& each : kernels) {
    if (each.code.empty()) throw DisassemblyError("no instruction could be read of the kernel " + each.name);
  }
  if (kernels.size() != by_symbol.size()) {
    throw DisassemblyError(
        fmt::format("cuobjdump prints the registers of {} kernels, and code of {}", by_symbol.size(), kernels.size()));
  }
  return kernels;
}

void read_launch_bounds(std::istream& ptx, std::vector<Kernel>& kernels) {
  std::map<std::string, int> bounds;
  std::string symbol;
  for (std::string line; std::getline(ptx, line);) {
    if (const std::size_t at = line.find(".entry "); at != std::string::npos && !line.starts_with("//")) {
      symbol = line.substr(at + 7, line.find('(') - at - 7);
      bounds[symbol] = 0;
    } else if (line.starts_with(".maxntid ")) {
      bounds[symbol] = number_after(line, ".maxntid ");
    }
  }
  for (Kernel& kernel : kernels) {
    if (const auto found = bounds.find(kernel.symbol); found != bounds.end()) kernel.max_threads = found->second;
  }
}

}  // namespace trireme::sass
