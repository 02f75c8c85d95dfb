#pragma once

#include <cstddef>
#include <cstdint>

namespace trireme::gpu {

/// Launch configuration of a kernel: `blocks` blocks of `threads` threads (a multiple of 32), each block with
/// `shared_bytes` of dynamic shared memory. `kernel` is its name in messages, `remedy` a way to reduce its shared
/// memory.
struct Launch {
  const char* kernel;
  std::int64_t blocks;
  int threads;
  std::size_t shared_bytes = 0;
  const char* remedy = "";
};

/// Dynamic shared memory available without opt-in: 48 KiB less the kernel's static shared memory.
constexpr std::size_t shared_bytes_unasked = 32 << 10;

}  // namespace trireme::gpu
