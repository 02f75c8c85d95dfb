#include "bench/sass/bound.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <sstream>
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

namespace {

/// Kernel with its table line, and its path with or without dropout.
struct Bound {
  const Kernel& kernel;
  const Expectation& line;
  bool dropout;

  int warps() const {
    const int blocks = blocks_at_once(kernel.registers, line.threads, kernel.shared_bytes + line.shared_bytes);
    return blocks * line.threads / 32;
  }
  Counts counts() const { return hot_path(kernel, {dropout, line.inner_turns}); }
  Cycles cycles() const { return cycles_of(counts(), warps()); }
  double share() const { return predicted_share(counts(), cycles(), static_cast<double>(line.useful) / line.products); }
};

bool has_dropout(const Kernel& kernel, const Expectation& line) {
  return hot_path(kernel, {true, line.inner_turns}).instructions >
         hot_path(kernel, {false, line.inner_turns}).instructions;
}

/// Head of a table in Markdown with these columns.
std::string head(const std::string& columns) {
  std::string names = "|", line = "|";
  std::istringstream from(columns);
  for (std::string name; std::getline(from >> std::ws, name, ',');) {
    names += " " + name + " |";
    line += " --- |";
  }
  return names + "\n" + line + "\n";
}

std::string resources_of(const Bound& b) {
  return fmt::format("| `{}` | {} | {} | {} | {} |", b.kernel.name, b.kernel.registers, b.kernel.stack_bytes,
                     b.kernel.shared_bytes + b.line.shared_bytes, b.warps());
}

std::string memory_line(const Bound& b) {
  const Counts counts = b.counts();
  const Cycles cycles = b.cycles();
  if (b.line.arithmetic != 0) return resources_of(b) + " | | | | | | | |\n";
  return resources_of(b) + fmt::format(" {} | {} | {} | {:.0f} | {:.0f} | {:.0f} | {} | {:.0f} % |\n",
                                       b.dropout ? "yes" : "no", counts.loops ? "turn" : "all", counts.lane_bytes,
                                       cycles.issue, cycles.latency, cycles.memory, cycles.resource(), 100 * b.share());
}

std::string tile_line(const Bound& b) {
  const Counts counts = b.counts();
  const Cycles cycles = b.cycles();
  return resources_of(b) + fmt::format(" {} | {} | {} | {:.0f} | {:.0f} | {:.0f} | {:.0f} | {} | {:.0f} % |\n",
                                       b.dropout ? "yes" : "no", counts.hmma, counts.ldsm, cycles.issue,
                                       cycles.shared_memory, cycles.tensor, cycles.special, cycles.resource(),
                                       100 * b.share());
}

/// Both kernels of a backward at one head size and type: their cycles per useful product.
std::string backward_lines(const std::vector<Bound>& tiles) {
  struct Sum {
    double useful = 0, share_inverse = 0;
  };
  std::map<std::pair<std::string, bool>, Sum> sums;
  for (const Bound& b : tiles) {
    if (b.line.useful == b.line.products) continue;
    Sum& sum = sums[{b.kernel.name.substr(b.kernel.name.find('<')), b.dropout}];
    sum.useful += b.line.useful;
    sum.share_inverse += b.line.useful / b.share();
  }
  std::string text;
  for (const auto& [key, sum] : sums) {
    text += fmt::format("| `{}` | {} | {:.0f} % |\n", key.first, key.second ? "yes" : "no",
                        100 * sum.useful / sum.share_inverse);
  }
  return text;
}

}  // namespace

std::string report(const std::vector<Expectation>& table, const std::vector<Kernel>& kernels) {
  std::vector<Bound> tiles, others;
  std::vector<const Kernel*> sorted;
  for (const Kernel& kernel : kernels) {
    if (kernel.name.find("fp16") == std::string::npos) sorted.push_back(&kernel);
  }
  std::ranges::sort(sorted, {}, [](const Kernel* kernel) { return kernel->name; });
  for (const Kernel* each : sorted) {
    const Kernel& kernel = *each;
    const Expectation* line = find_expectation(table, kernel);
    if (line == nullptr) continue;
    auto& to = line->hmma > 0 ? tiles : others;
    to.push_back({kernel, *line, false});
    if (line->arithmetic == 0 && has_dropout(kernel, *line)) to.push_back({kernel, *line, true});
  }
  std::string text =
      "## Kernels on tensor cores\n\nCycles of a scheduler for one tile of a warp, and the share of the tensor cores' "
      "dense "
      "peak.\n\n" +
      head(
          "kernel, registers, stack bytes, shared bytes, warps, dropout, HMMA, LDSM, issue, shared memory, tensor "
          "cores, "
          "special functions, bound by, share");
  for (const Bound& b : tiles) text += tile_line(b);
  text +=
      "\nThe two kernels of the backward together, of ten operations for a channel of a pair of query and key:\n\n" +
      head("type and channels, dropout, share") + backward_lines(tiles);
  text +=
      "\n## Other kernels\n\nBytes that a thread moves in a turn of the kernel's loop, or in all of it, and cycles of "
      "a "
      "scheduler for them. The share is that of the rate of a copy.\n\n" +
      head(
          "kernel, registers, stack bytes, shared bytes, warps, dropout, path, bytes, issue, latency, memory, bound "
          "by, "
          "share");
  for (const Bound& b : others) text += memory_line(b);
  return text;
}

}  // namespace trireme::sass
