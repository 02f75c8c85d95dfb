#pragma once

#include "cuda/gpu/launch.hpp"
#include "src/base/check.hpp"

namespace trireme::gpu {

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
