#include "tests/ptx/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace trireme::ptx {
namespace {

void run_block(std::deque<Warp>& warps, SharedMemory& shared) {
  shared.reset();
  for (Warp& warp : warps) warp.reset();
  while (true) {
    for (Warp& warp : warps) warp.run();
    if (std::all_of(warps.begin(), warps.end(), [](const Warp& warp) { return warp.has_ended(); })) return;
    for (const Warp& warp : warps) {
      if (!warp.is_at_barrier() && !warp.has_ended()) warp.fail_at_barrier();
    }
    if (!std::all_of(warps.begin(), warps.end(), [](const Warp& warp) { return warp.is_at_barrier(); })) {
      std::find_if(warps.begin(), warps.end(), [](const Warp& warp) {
        return warp.is_at_barrier();
      })->fail_at_barrier();
    }
    for (Warp& warp : warps) warp.pass_barrier();
    shared.pass_block_barrier();
  }
}

}  // namespace

void run(const Kernel& kernel, const Launch& launch, const Regions& regions) {
  if (launch.threads <= 0 || launch.threads % warp_size != 0 || launch.threads > kernel.max_threads) {
    throw PtxError(fmt::format("kernel {}: blocks of {} threads, and it was compiled for at most {}", kernel.name,
                               launch.threads, kernel.max_threads));
  }
  SharedMemory shared(kernel.shared_bytes + launch.shared_bytes, launch.threads);
  BlockState block{&kernel, &launch.parameters, &regions, &shared, 0, launch.blocks, launch.threads};
  std::deque<Warp> warps;
  for (int warp = 0; warp < launch.threads / warp_size; ++warp) warps.emplace_back(block, warp);
  for (; block.number < launch.blocks; ++block.number) run_block(warps, shared);
}

std::vector<std::byte> pack_parameters(const Kernel& kernel, std::span<const void* const> arguments) {
  std::vector<std::byte> packed(kernel.parameter_bytes);
  for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
    std::memcpy(packed.data() + kernel.parameters[i].offset, arguments[i], kernel.parameters[i].size);
  }
  return packed;
}

}  // namespace trireme::ptx
