#include "bench/sass/bound.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace trireme::sass {
namespace {

constexpr double warp_threads = 32, hmma_multiply_adds = 16 * 8 * 16;

std::array<std::pair<double, const char*>, 6> by_resource(const Cycles& c) {
  return {{{c.issue, "issue"},
           {c.shared_memory, "shared memory"},
           {c.tensor, "tensor cores"},
           {c.special, "special functions"},
           {c.memory, "memory"},
           {c.latency, "latency"}}};
}

}  // namespace

int blocks_at_once(int registers, int threads, int shared_bytes) {
  const int of_warp = (registers * 32 + 255) / 256 * 256, warps = (threads + 31) / 32;
  const int by_registers = register_file / std::max(1, of_warp) / warps;
  return std::min({max_blocks, max_threads / threads, by_registers, max_shared_bytes / std::max(1024, shared_bytes)});
}

int most_registers(int blocks, int threads) {
  int registers = 255;
  while (registers > 0 && blocks_at_once(registers, threads, 0) < blocks) --registers;
  return registers;
}

double Cycles::longest() const { return std::ranges::max(by_resource(*this)).first; }
const char* Cycles::resource() const { return std::ranges::max(by_resource(*this)).second; }

Cycles cycles_of(const Counts& counts, int warps) {
  Cycles cycles{};
  cycles.issue = counts.instructions;
  cycles.shared_memory = schedulers * counts.shared_wavefronts;
  cycles.tensor = counts.hmma * hmma_multiply_adds / tensor_rate / mma_sync_share;
  cycles.special = special_cycles * counts.special;
  cycles.memory = schedulers * warp_threads * counts.lane_bytes / copy_rate;
  // All loads of a path are in flight together; then the warp waits. Each scheduler has a quarter of the warps.
  if (counts.hmma == 0 && counts.loaded_bytes > 0) cycles.latency = load_latency * schedulers / warps;
  return cycles;
}

double predicted_share(const Counts& counts, const Cycles& cycles, double useful) {
  if (counts.hmma == 0) return cycles.memory / cycles.longest();
  return useful * cycles.tensor * mma_sync_share / cycles.longest();
}

}  // namespace trireme::sass
