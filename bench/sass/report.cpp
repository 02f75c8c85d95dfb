#include "bench/sass/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "bench/sass/bound.hpp"

namespace trireme::sass {
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
