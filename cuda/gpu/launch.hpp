#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/check.hpp"

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

/// Throws ConfigError if a GPU whose blocks have at most `max_shared_bytes` of shared memory cannot start it.
inline void check_launch(const Launch& launch, std::size_t max_shared_bytes) {
  constexpr std::int64_t max_blocks = 0x7fffffff;
  TRIREME_CHECK(launch.blocks <= max_blocks, ConfigError,
                "the kernel {} has {} blocks, and a GPU starts at most {}. Try a smaller <micro_batch_size>",
                launch.kernel, launch.blocks, max_blocks);
  TRIREME_CHECK(launch.shared_bytes <= max_shared_bytes, ConfigError,
                "the kernel {} needs {} bytes of shared memory for a block, and this GPU has {}{}{}", launch.kernel,
                launch.shared_bytes, max_shared_bytes, *launch.remedy == 0 ? "" : ": ", launch.remedy);
}

}  // namespace trireme::gpu
