#pragma once

#include <unistd.h>

#include <cstddef>

namespace trireme {

/// All memory of this machine.
inline std::size_t machine_memory_bytes() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
}

}  // namespace trireme
