#pragma once

#include <span>

#include "tests/ptx/warp.hpp"

namespace trireme::ptx {

struct Launch {
  unsigned blocks = 1;
  int threads = warp_size;       ///< block size, a multiple of 32
  std::size_t shared_bytes = 0;  ///< dynamic
  /// The kernel's parameters, as PTX declares them.
  std::vector<std::byte> parameters;
};

/// Runs the blocks of a kernel one after the other, on the calling thread. Global memory is the host's; `regions` gives
/// the part that the kernel may touch. Throws PtxError for accesses elsewhere, races in shared memory, barriers that
/// some threads do not reach, and more threads than the kernel was compiled for.
void run(const Kernel& kernel, const Launch& launch, const Regions& regions);

/// Arguments, given by address, as a kernel's parameters.
std::vector<std::byte> pack_parameters(const Kernel& kernel, std::span<const void* const> arguments);

}  // namespace trireme::ptx
