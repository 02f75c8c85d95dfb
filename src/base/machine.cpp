#include "src/base/machine.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

#include "src/base/log.hpp"

namespace trireme {
namespace {

/// Value of an environment variable; null if it is empty.
const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

/// Returns the number after the word `key` of a file, or after its beginning without a key; empty if there is none.
std::optional<std::int64_t> number_in(const std::filesystem::path& path, std::string_view key = "") {
  std::ifstream file(path);
  std::string word;
  while (word != key && file >> word) continue;
  std::int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

/// Names of a control group's files: v1 counts the groups below it under other names.
struct GroupFiles {
  const char* limit;
  const char* usage;
  const char* inactive_cache;
  const char* active_cache;
};

/// Lowers `memory` to the limits of the control group `group`, a path from `mount`, and of those above it. In a
/// container the path may be that of the host, and `mount` the container's own group.
void apply_limits(const std::filesystem::path& mount, std::string_view group, const GroupFiles& files,
                  MachineMemory& memory) {
  std::filesystem::path below = std::filesystem::path(group).relative_path();
  for (bool is_root = false; !is_root; below = below.parent_path()) {
    is_root = below.empty();
    const std::filesystem::path folder = mount / below;
    const std::optional<std::int64_t> limit = number_in(folder / files.limit);
    if (!limit) continue;
    const std::int64_t cache = number_in(folder / "memory.stat", files.inactive_cache).value_or(0) +
                               number_in(folder / "memory.stat", files.active_cache).value_or(0);
    const std::int64_t used = std::max<std::int64_t>(number_in(folder / files.usage).value_or(0) - cache, 0);
    memory.total_bytes = std::min(memory.total_bytes, *limit);
    memory.available_bytes = std::min(memory.available_bytes, std::max<std::int64_t>(*limit - used, 0));
  }
}

}  // namespace

MachineMemory machine_memory(const std::string& root) {
  MachineMemory memory;
  memory.total_bytes = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  const std::optional<std::int64_t> available_kib = number_in(root + "/proc/meminfo", "MemAvailable:");
  memory.available_bytes = available_kib ? *available_kib << 10 : memory.total_bytes;
  std::ifstream groups(root + "/proc/self/cgroup");  // lines NUMBER:CONTROLLERS:PATH
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers = std::string_view(line).substr(first, second - first);
    const std::string_view group = std::string_view(line).substr(second + 1);
    if (line.starts_with("0::")) {
      apply_limits(root + "/sys/fs/cgroup", group, {"memory.max", "memory.current", "inactive_file", "active_file"},
                   memory);
    } else if (controllers == ":memory") {
      apply_limits(root + "/sys/fs/cgroup/memory", group,
                   {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file"},
                   memory);
    }
  }
  return memory;
}

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
