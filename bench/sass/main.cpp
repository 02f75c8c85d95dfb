// Compares the machine code of the CUDA kernels in a library or an object, as the compiler made it, with a table of
// expectations, and prints what differs. No GPU is needed.
//
// usage: kernel_sass LIBRARY [--table FILE] [--cuobjdump PROGRAM]      default table: bench/sass/kernels.txt
//
// Exit status: 1 if it finds a difference, 2 usage, 4 no cuobjdump or nothing that can be read, 77 no code for compute
// capability 9.0.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include "bench/sass/table.hpp"

namespace trireme::sass {
namespace {

constexpr int usage = 2, unreadable = 4, nothing_to_check = 77;

/// Returns what a command prints. Throws if it fails.
std::istringstream output_of(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  std::string text;
  std::array<char, 1 << 16> part;
  for (std::size_t size = 0; pipe != nullptr && (size = fread(part.data(), 1, part.size(), pipe)) > 0;) {
    text.append(part.data(), size);
  }
  if (pipe == nullptr || pclose(pipe) != 0) {
    throw DisassemblyError(fmt::format(
        "{} failed. Name the library, and NVIDIA's cuobjdump by --cuobjdump, and have its nvdisasm in the PATH",
        command));
  }
  return std::istringstream(std::move(text));
}

std::string quoted(const std::string& text) { return "'" + text + "'"; }

int run(const std::string& library, const std::string& table_file, const std::string& cuobjdump) {
  std::ifstream table_stream(table_file);
  if (!table_stream) throw DisassemblyError("cannot read the table " + table_file);
  const std::vector<Expectation> table = read_table(table_stream, table_file);

  std::istringstream resources = output_of(quoted(cuobjdump) + " -res-usage " + quoted(library) + " 2>&1");
  const std::set<std::string> architectures = architectures_of(resources);
  if (architectures.empty()) {
    std::cout << library << " has no code for compute capability 9.0, of which the table's figures are\n";
    return nothing_to_check;
  }
  std::vector<Kernel> kernels;
  for (const std::string& architecture : architectures) {
    resources.clear();
    resources.seekg(0);
    std::istringstream code = output_of(quoted(cuobjdump) + " -sass -arch " + architecture + " " + quoted(library));
    std::ranges::move(read_kernels(resources, code, architecture), std::back_inserter(kernels));
  }
  std::istringstream ptx = output_of(quoted(cuobjdump) + " -ptx " + quoted(library) + " 2>&1");
  read_launch_bounds(ptx, kernels);
  const std::vector<std::string> faults = check(table, kernels);
  for (const std::string& fault : faults) std::cout << fault << "\n";
  std::cout << fmt::format("{} kernels of {}, {} faults\n", kernels.size(), fmt::join(architectures, " and "),
                           faults.size());
  return faults.empty() ? 0 : 1;
}

}  // namespace
}  // namespace trireme::sass

int main(int argc, char** argv) {
  using namespace trireme::sass;
  std::string library, table = TRIREME_SASS_TABLE, cuobjdump = "cuobjdump";
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--table" && i + 1 < arguments.size()) {
      table = arguments[++i];
    } else if (arguments[i] == "--cuobjdump" && i + 1 < arguments.size()) {
      cuobjdump = arguments[++i];
    } else if (library.empty() && !arguments[i].starts_with("-")) {
      library = arguments[i];
    } else {
      library.clear();
      break;
    }
  }
  if (library.empty()) {
    std::cerr << "usage: kernel_sass LIBRARY [--table FILE] [--cuobjdump PROGRAM]\n";
    return usage;
  }
  try {
    return run(library, table, cuobjdump);
  } catch (const std::runtime_error& error) {
    std::cerr << error.what() << "\n";
    return unreadable;
  }
}
