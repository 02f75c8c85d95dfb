#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/trace.hpp"
#include "src/comm/communicator.hpp"

namespace trireme::train {

/// Ranks whose times are logged (Megatron-LM's --timing-log-option).
enum class TimingOption { max, minmax, all };

/// Time of a part of an iteration, by rank.
struct PartTimes {
  std::string_view name;   ///< Megatron-LM's name of its timer
  std::vector<double> ms;  ///< mean per iteration, by rank; 0 if a rank has no such part
  int least = 0;           ///< rank with the least time above 0
  int greatest = 0;
};

/// Rank that the others wait for.
struct Straggler {
  int rank = 0;
  double delay_ms = 0;      ///< its own work minus the median rank's, mean per iteration
  double iteration_ms = 0;  ///< mean over ranks and iterations
  double share() const { return iteration_ms > 0 ? delay_ms / iteration_ms : 0; }
};

/// Sums the times of the parts of this rank's iterations, and compares the ranks. Parts by level:
///  * 1: forward-backward (from the first step of the pipeline to the end of the last), all-grads-sync,
///    optimizer-clip-main-grad (loss and gradient norm), optimizer.
///  * 2: also batch-generator, forward-compute, backward-compute, forward-recv, backward-recv.
/// A rank's own work is the iteration minus its waits for communication. In a synchronous job an iteration takes the
/// same time on all ranks: the others wait for the rank with the most work of its own.
class RankTimes {
 public:
  /// `level` 0: no parts, only the straggler.
  explicit RankTimes(int level) : sums_ms_(parts(level)) {}

  /// Adds an iteration: the spans of this rank, including those of evaluations, and its waits.
  void add(std::span<const TraceSpan> spans, double iteration_ms, double waited_ms);

  struct Report {
    std::int64_t iterations = 0;
    std::vector<PartTimes> parts;  ///< those that any rank has
    Straggler straggler;
  };
  /// Returns the means since the last call, the same on every rank of `world` (host memory). Collective.
  Report take(Communicator& world);

 private:
  static std::size_t parts(int level);
  std::vector<double> sums_ms_;  // by part
  double iteration_ms_ = 0;
  double waited_ms_ = 0;
  std::int64_t iterations_ = 0;
};

/// Formats the times by rank as lines of the log. `places` names the ranks: "rank 3 on node7".
std::vector<std::string> lines_of(const RankTimes::Report& report, TimingOption option,
                                  std::span<const std::string> places);

}  // namespace trireme::train
