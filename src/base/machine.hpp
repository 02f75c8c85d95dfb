#pragma once

#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

/// Memory of this machine, or the part of it that a container or a batch system grants this process.
struct MachineMemory {
  std::int64_t total_bytes = 0;
  std::int64_t available_bytes = 0;  ///< memory that programs can still take, with the cache of files
};

/// Returns the least of the machine's memory and of the limits of this process' control groups (cgroups v1 and v2).
/// Reads /proc and /sys/fs/cgroup below `root`.
MachineMemory machine_memory(const std::string& root = "");
inline std::size_t machine_memory_bytes() { return static_cast<std::size_t>(machine_memory().total_bytes); }

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
