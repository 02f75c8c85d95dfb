#pragma once

#include <unistd.h>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace trireme {

inline std::size_t machine_memory_bytes() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
}

/// Name of this machine.
inline std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// Name of this node for messages: the one that SLURM's options take, else `host_name`.
std::string node_name();

/// Reports nodes with a fault, so that the job's script (jobs/lives.sh) leaves them out when it starts the ranks again:
/// appends their names, a line each, to the file that the environment variable TRIREME_FAULTY_NODES names. Does nothing
/// without it. Logs a warning if the file cannot be written.
void report_faulty_nodes(const std::vector<std::string>& nodes);

}  // namespace trireme
