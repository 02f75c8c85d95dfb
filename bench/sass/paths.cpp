#include "bench/sass/paths.hpp"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <set>

namespace trireme::sass {
namespace {

bool begins(const std::string& text, const char* with) { return text.starts_with(with); }
bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

bool is_end(const Instruction& i) { return !i.predicated && (begins(i.opcode, "EXIT") || begins(i.opcode, "RET")); }
/// Target of a branch; a branch through a register has none.
std::optional<std::int64_t> target_of(const Instruction& i) {
  const std::size_t at = i.operands.rfind("0x");
  if (!begins(i.opcode, "BRA") || at == std::string::npos) return std::nullopt;
  return std::strtoll(i.operands.c_str() + at, nullptr, 16);
}
/// Returns whether threads may fall through a branch.
bool is_conditional(const Instruction& branch) { return branch.predicated || !begins(branch.operands, "0x"); }

/// Returns whether it multiplies by a constant of Philox.
bool is_draw(const Instruction& i) { return has(i.operands, "-0x2daee0ad") || has(i.operands, "-0x326172a9"); }

/// Returns whether it selects the keys of a word of masks (HeadMasks::load_columns), by 0xff00ff00.
bool reads_masks(const Instruction& i) { return has(i.operands, "0xff00ff00"); }

void add(const Instruction& i, double times, Counts& to) {
  const std::string& op = i.opcode;
  to.instructions += times;
  to.hmma += begins(op, "HMMA") ? times : 0;
  to.hgmma += begins(op, "HGMMA") ? times : 0;
  to.copies += begins(op, "LDGSTS.") ? times : 0;
  to.ldsm += begins(op, "LDSM") ? times : 0;
  to.wide += (begins(op, "LDG.") || begins(op, "STG.")) && has(op, ".128") ? times : 0;
}

struct Block {
  std::size_t begin = 0, end = 0;  ///< range of the kernel's instructions
  std::vector<std::size_t> next;
};

struct Loop {
  std::size_t head;
  std::set<std::size_t> blocks, latches;
};

/// Basic blocks of a kernel, and its loops.
class Graph {
 public:
  explicit Graph(const Kernel& kernel) : code_(kernel.code) {
    find_blocks();
    find_back_edges();
    for (const auto& [from, to] : back_edges_) {
      auto loop = std::ranges::find(loops, to, &Loop::head);
      if (loop == loops.end()) loop = loops.insert(loops.end(), {to, {to}, {}});
      loop->latches.insert(from);
      add_predecessors(from, *loop);
    }
  }

  const std::vector<Instruction>& code() const { return code_; }
  bool is_back_edge(std::size_t from, std::size_t to) const { return back_edges_.contains({from, to}); }

  std::vector<Block> blocks;
  std::vector<Loop> loops;
  std::vector<std::size_t> order;  ///< reachable blocks in topological order, ignoring back edges

 private:
  void find_blocks() {
    std::set<std::size_t> begins{0};
    std::map<std::int64_t, std::size_t> at_address;
    for (std::size_t i = 0; i < code_.size(); ++i) at_address[code_[i].address] = i;
    for (std::size_t i = 0; i < code_.size(); ++i) {
      const auto target = target_of(code_[i]);
      if (target && at_address.contains(*target)) begins.insert(at_address[*target]);
      if ((begins_next(code_[i]) || target) && i + 1 < code_.size()) begins.insert(i + 1);
    }
    std::map<std::size_t, std::size_t> block_at;
    for (auto begin = begins.begin(); begin != begins.end(); ++begin) {
      const auto next = std::next(begin);
      block_at[*begin] = blocks.size();
      blocks.push_back({*begin, next == begins.end() ? code_.size() : *next, {}});
    }
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      const Instruction& last = code_[blocks[b].end - 1];
      const auto target = target_of(last);
      if (target && at_address.contains(*target)) blocks[b].next.push_back(block_at[at_address[*target]]);
      const bool goes_on = target ? is_conditional(last) : !begins_next(last) || last.predicated;
      if (goes_on && b + 1 < blocks.size()) blocks[b].next.push_back(b + 1);
    }
  }
  static bool begins_next(const Instruction& i) { return is_end(i) || begins(i.opcode, "BRX"); }

  void find_back_edges() {
    std::vector<int> state(blocks.size(), 0);  // 1 in progress, 2 done
    const std::function<void(std::size_t)> visit = [&](std::size_t b) {
      state[b] = 1;
      for (const std::size_t next : blocks[b].next) {
        if (state[next] == 1) back_edges_.insert({b, next});
        if (state[next] == 0) visit(next);
      }
      state[b] = 2;
      order.push_back(b);
    };
    visit(0);
    std::ranges::reverse(order);
  }
  void add_predecessors(std::size_t b, Loop& loop) {
    if (!loop.blocks.insert(b).second) return;
    for (std::size_t from = 0; from < blocks.size(); ++from) {
      if (std::ranges::find(blocks[from].next, b) != blocks[from].next.end()) add_predecessors(from, loop);
    }
  }

  const std::vector<Instruction>& code_;
  std::set<std::pair<std::size_t, std::size_t>> back_edges_;
};

struct Work {
  double done = 0, instructions = 0;
  /// More work, or the same with fewer instructions.
  bool better_than(const Work& other) const {
    return done != other.done ? done > other.done : instructions < other.instructions;
  }
};

class PathFinder {
 public:
  using Dropout = PathOptions::Dropout;
  PathFinder(const Graph& graph, bool products, Dropout dropout)
      : graph_(graph), products_(products), dropout_(dropout) {}

  double work_of(std::size_t block) const {
    double work = 0;
    for (std::size_t i = graph_.blocks[block].begin; i < graph_.blocks[block].end; ++i) {
      Counts one;
      add(graph_.code()[i], 1, one);
      // One of a warp group is at least eight of a warp.
      work += products_ ? one.hmma + 8 * one.hgmma + one.copies : one.wide;
    }
    return work;
  }

  /// Counts of the best path from `head` to one of `ends` over blocks allowed by `in`. Blocks of `inner` count
  /// `inner_turns` times.
  Counts best(std::size_t head, const std::function<bool(std::size_t)>& in, const std::set<std::size_t>& ends,
              const Loop* inner, int inner_turns) const {
    std::map<std::size_t, Work> reached;
    std::map<std::size_t, std::size_t> from;
    const auto times = [&](std::size_t b) { return inner != nullptr && inner->blocks.contains(b) ? inner_turns : 1; };
    const auto weight = [&](std::size_t b) {
      double masks = 0;
      for (std::size_t i = graph_.blocks[b].begin; i < graph_.blocks[b].end; ++i) {
        const Instruction& one = graph_.code()[i];
        masks += dropout_ == Dropout::drawn ? is_draw(one) : dropout_ == Dropout::read ? reads_masks(one) : 0;
      }
      const double size = static_cast<double>(graph_.blocks[b].end - graph_.blocks[b].begin);
      return Work{work_of(b) + masks, size * times(b)};
    };
    reached[head] = weight(head);
    std::optional<std::size_t> end;
    for (const std::size_t b : graph_.order) {
      if (!reached.contains(b)) continue;
      if (ends.contains(b) && (!end || reached[b].better_than(reached[*end]))) end = b;
      for (const std::size_t next : graph_.blocks[b].next) {
        if (graph_.is_back_edge(b, next) || !in(next)) continue;
        const Work own = weight(next), sum{reached[b].done + own.done, reached[b].instructions + own.instructions};
        if (reached.contains(next) && !sum.better_than(reached[next])) continue;
        reached[next] = sum;
        from[next] = b;
      }
    }
    if (!end) throw DisassemblyError("a kernel has no path from its begin to its end");
    Counts counts;
    for (std::size_t b = *end;; b = from[b]) {
      for (std::size_t i = graph_.blocks[b].begin; i < graph_.blocks[b].end; ++i) {
        add(graph_.code()[i], times(b), counts);
      }
      if (b == head) return counts;
    }
  }

 private:
  const Graph& graph_;
  bool products_;
  Dropout dropout_;
};

}  // namespace

int count_of(const Kernel& kernel, const std::string& opcode, const std::string& part) {
  return static_cast<int>(std::ranges::count_if(kernel.code, [&](const Instruction& i) {
    return i.opcode.starts_with(opcode) && i.opcode.find(part) != std::string::npos;
  }));
}

Counts hot_path(const Kernel& kernel, const PathOptions& options) {
  const Graph graph(kernel);
  const PathFinder finder(graph, count_of(kernel, "HMMA") + count_of(kernel, "HGMMA") > 0, options.dropout);
  double all = 0;
  for (const std::size_t b : graph.order) all += finder.work_of(b);
  std::vector<const Loop*> hot;  // loops with at least half of the work, the smallest first
  for (const Loop& loop : graph.loops) {
    double work = 0;
    for (const std::size_t b : loop.blocks) work += finder.work_of(b);
    if (work > 0 && 2 * work >= all) hot.push_back(&loop);
  }
  std::ranges::sort(hot, {}, [](const Loop* loop) { return loop->blocks.size(); });
  if (hot.size() < (options.inner_turns > 0 ? 2 : 1)) {
    if (options.inner_turns > 0) throw DisassemblyError("the kernel " + kernel.name + " has no two nested loops");
    std::set<std::size_t> ends;
    for (const std::size_t b : graph.order) {
      if (graph.blocks[b].next.empty() || begins(graph.code()[graph.blocks[b].end - 1].opcode, "EXIT")) ends.insert(b);
    }
    return finder.best(
        0, [](std::size_t) { return true; }, ends, nullptr, 1);
  }
  const Loop& loop = *hot[options.inner_turns > 0 ? 1 : 0];
  const auto inside = [&](std::size_t b) { return loop.blocks.contains(b); };
  return finder.best(loop.head, inside, loop.latches, options.inner_turns > 0 ? hot[0] : nullptr,
                     std::max(1, options.inner_turns));
}

}  // namespace trireme::sass
