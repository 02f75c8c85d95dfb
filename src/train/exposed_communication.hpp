#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/parallel/grid/grid_communicators.hpp"

namespace trireme::train {

/// Name of a group, and the time for which its communication delayed the ranks.
using ExposedTime = std::pair<std::string, double>;

/// Measures exposed communication: the time from a stream's arrival at a wait for communication to the end of that
/// wait, by two events on GPUs and by the clock on CPUs. Communication overlapped with computation does not count.
/// Waits for late ranks do, so pipeline bubbles count as communication of the pipeline.
class ExposedCommunication {
 public:
  /// Replaces the communicators of `groups` with several ranks by timed ones, until this object ends, which its
  /// arguments must outlive.
  ExposedCommunication(Communicator& world, parallel::GridCommunicators& groups);
  ~ExposedCommunication();
  ExposedCommunication& operator=(ExposedCommunication&&) = delete;

  /// `world`, timed.
  Communicator& world() { return *timed_world_; }

  /// Discards all waits so far.
  void restart();
  /// Returns by group the fraction of the ranks' time for which they waited, times this rank's time: `elapsed_ms` * sum
  /// of waits / sum of `elapsed_ms`, both over the ranks of the world. So the waits of ranks that began a step earlier
  /// never exceed this rank's. `elapsed_ms` is a positive time in milliseconds that contains all waits since the last
  /// call of this function or `restart`. Omits groups without waits. Waiting streams must be synchronized. Collective.
  std::vector<ExposedTime> take_ms(double elapsed_ms);
  /// Milliseconds of this rank in the last `take_ms`, summed over the groups.
  double own_ms() const { return own_ms_; }

 private:
  class TimedCommunicator;
  class TimedState;
  struct Wait {
    std::size_t group;  ///< index in `names_`
    std::unique_ptr<TimedEvent> begin, end;
  };

  Communicator& world_;
  parallel::GridCommunicators& groups_;
  std::vector<std::string> names_;
  std::vector<Wait> waits_;
  double own_ms_ = 0;
  std::unique_ptr<Communicator> timed_world_;
};

}  // namespace trireme::train
