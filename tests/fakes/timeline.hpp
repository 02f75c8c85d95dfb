#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// Model of a GPU's multiprocessors in virtual time. A test traces the work that it enqueues on the fake CUDA runtime,
/// and asks when each piece would have run. What runs, and in what order, does not change.
///
/// Rules of the model:
///  * A block takes a multiprocessor until it ends. Nothing is preempted.
///  * Free multiprocessors go to the waiting work of highest priority, among equals to the work that is ready first.
///  * Work is ready when the work before it on its stream has ended, and later by `event_us` if an event orders it
///  after another stream's. So of two pieces that follow the same work, that on the same stream is first.
///  * A product has at most as many blocks as multiprocessors, or as its target. Each computes its tiles one after
///    another, as those of persistent kernels do.
///  * The blocks of a collective keep their multiprocessors until all have theirs, and then for the time of the
///  transfer.
///    Peers are never late.
///  * The host is never late. Copies take no multiprocessors and no time.
namespace fake_cuda {

/// Multiprocessors of the fake GPU: those of an H100.
inline constexpr int multiprocessors = 132;

/// Multiprocessors that a piece of work takes.
struct Demand {
  int blocks = 0;       ///< 0: none, and no time
  double block_us = 0;  ///< time of a block, or of a collective's transfer
  bool is_collective = false;
};

/// Rates, for the small operands of tests.
struct Costs {
  int tile = 8;                ///< rows and columns of d that a block of a product computes at once
  double us_per_tile_k = 1;    ///< time for a unit of k
  double bytes_per_us = 300;   ///< rate of collectives
  double kernel_block_us = 1;  ///< time of a block of any other kernel
  double event_us = 1;
};
inline constexpr Costs costs;

/// Demand of the product d[m, n] += a[m, k] b[k, n] on at most `target` multiprocessors; 0: all.
Demand product_demand(std::uint64_t m, std::uint64_t n, std::uint64_t k, int target);
Demand collective_demand(int blocks, std::size_t bytes);

/// Piece of work of a trace.
struct Step {
  std::string name;
  int stream = 0;
  int priority = 0;  ///< the lower, the earlier
  Demand demand;
  int before = -1;          ///< step before it on its stream
  std::vector<int> events;  ///< steps of other streams that it waits for
};
using Trace = std::vector<Step>;

/// Begins to trace the work that is enqueued, also by launches of graphs.
void start_trace();
/// Ends the trace, and returns it in the order of the host's calls.
Trace take_trace();

/// Time of a step.
struct Span {
  std::string name;
  int stream = 0;
  int blocks = 0;
  double ready_us = 0;
  double begin_us = 0;  ///< the first block has a multiprocessor; of a collective: all blocks have
  double end_us = 0;
  double waited_us() const { return begin_us - ready_us; }
  /// Time during which both run.
  double overlap_us(const Span& other) const;
};
using Timeline = std::vector<Span>;

/// Times of the steps with blocks.
Timeline simulate(const Trace& trace);

/// End of each step, those without blocks among them.
std::vector<double> ends_us(const Trace& trace);

}  // namespace fake_cuda
