#pragma once

#include <unistd.h>

#include <array>
#include <cstddef>
#include <string>

namespace trireme {

inline std::size_t machine_memory_bytes() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
}

/// Name of this machine, for messages.
inline std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace trireme
