#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

namespace trireme::test {

/// A seed that no run has had before, for random inputs; TRIREME_TEST_SEED repeats one that a failure has named.
inline std::uint64_t fresh_seed() {
  if (const char* given = std::getenv("TRIREME_TEST_SEED")) return std::stoull(given);
  return std::random_device{}();
}

}  // namespace trireme::test
