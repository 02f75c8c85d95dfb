#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/parallel/grid/grid_communicators.hpp"

namespace trireme::train {

/// Time for which a group's communication delayed the ranks, and the group's name.
using ExposedTime = std::pair<std::string, double>;

/// Measures exposed communication: the time between a stream's arrival at a wait for communication and the end of that
/// wait. On GPUs two events on the waiting stream measure it, on the CPU the clock. Communication behind computing does
/// not count. A wait for a rank that arrives late does, so the bubble of a pipeline counts as the pipeline's.
class ExposedCommunication {
 public:
  /// Replaces those of `groups` that have several ranks by communicators that are timed. This object and its
  /// arguments must live longer than all communication through them.
  ExposedCommunication(Communicator& world, parallel::GridCommunicators& groups);
  ~ExposedCommunication();
  ExposedCommunication(const ExposedCommunication&) = delete;
  ExposedCommunication& operator=(const ExposedCommunication&) = delete;

  /// `world`, timed.
  Communicator& world() { return *timed_world_; }

  /// Forgets all waits so far.
  void restart();
  /// Milliseconds by group since the last call of this function or `restart`: means over the ranks of the world, the
  /// same on all of them. Groups without waits are left out. The streams that waited must be synchronized. Collective.
  std::vector<ExposedTime> take_ms();
  /// Milliseconds of this rank alone, of all groups, that the last `take_ms` returned.
  double own_ms() const { return own_ms_; }

 private:
  class TimedCommunicator;
  class TimedState;
  struct Wait {
    std::size_t group;  ///< index in `names_`
    std::unique_ptr<TimedEvent> begin, end;
  };

  std::unique_ptr<Communicator> timed(Communicator& inner, const std::string& name,
                                      std::unique_ptr<Communicator> owned = nullptr);

  Communicator& world_;
  std::vector<std::string> names_;
  std::vector<Wait> waits_;
  double own_ms_ = 0;
  std::unique_ptr<Communicator> timed_world_;
};

}  // namespace trireme::train
