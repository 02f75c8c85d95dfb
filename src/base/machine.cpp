#include "src/base/machine.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "src/base/log.hpp"

namespace trireme {
namespace {

/// Value of an environment variable; null if it is empty.
const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

}  // namespace

std::string node_name() {
  const char* name = environment("SLURMD_NODENAME");
  return name != nullptr ? name : host_name();
}

void report_faulty_nodes(const std::vector<std::string>& nodes) {
  const char* path = environment("TRIREME_FAULTY_NODES");
  if (path == nullptr) return;
  std::string lines;
  for (const std::string& node : nodes) lines += node + "\n";
  std::ofstream file(path, std::ios::app);
  file << lines << std::flush;
  if (!file) log::warn("cannot write to TRIREME_FAULTY_NODES={}: {}", path, std::strerror(errno));
}

}  // namespace trireme
