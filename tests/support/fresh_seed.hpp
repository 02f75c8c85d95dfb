#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

namespace trireme::test {

/// What TRIREME_TEST_SEED says; without it 0. All random values depend on it (random_tensor.hpp): the same in every run
/// of ctest, others in every run on a GPU, which names its seed.
inline std::uint64_t run_seed() {
  const char* given = std::getenv("TRIREME_TEST_SEED");
  return given != nullptr ? std::stoull(given) : 0;
}

/// A seed that no run has had before, for random inputs; TRIREME_TEST_SEED repeats one that a failure has named.
inline std::uint64_t fresh_seed() {
  return std::getenv("TRIREME_TEST_SEED") != nullptr ? run_seed() : std::random_device{}();
}

}  // namespace trireme::test
