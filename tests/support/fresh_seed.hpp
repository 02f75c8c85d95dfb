#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

namespace trireme::test {

/// Value of TRIREME_TEST_SEED, by default 0. All random values depend on it (random_tensor.hpp). It is the same in
/// every run of ctest; a run on a GPU chooses and prints a new one.
inline std::uint64_t run_seed() {
  const char* given = std::getenv("TRIREME_TEST_SEED");
  return given != nullptr ? std::stoull(given) : 0;
}

/// A seed that no run has had before, for random inputs; TRIREME_TEST_SEED repeats one that a failure has named.
inline std::uint64_t fresh_seed() {
  return std::getenv("TRIREME_TEST_SEED") != nullptr ? run_seed() : std::random_device{}();
}

}  // namespace trireme::test
