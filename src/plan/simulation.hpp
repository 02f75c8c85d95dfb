#pragma once

#include <vector>

#include "src/parallel/pipeline/schedule.hpp"

namespace trireme::plan {

/// Time of each kind of step on one micro-batch of one chunk, in any unit. A backward in one piece takes both halves.
struct ChunkTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
};

/// Times of a schedule's steps and messages.
struct ScheduleTimes {
  std::vector<ChunkTimes> chunks;  ///< by position in the order in which data passes them: chunk x stages + rank
  double transfer = 0;             ///< time of a message to another rank, while ranks compute
  double receive = 0;              ///< additional time that blocks the receiver

  /// Same times for all chunks.
  static ScheduleTimes uniform(const parallel::Schedule& schedule, const ChunkTimes& times, double transfer = 0);
};

struct TimedStep {
  parallel::Step step;
  double start = 0;
  double end = 0;
};

/// Time of one rank until the end of its last step. The parts add up to it.
struct RankTime {
  double busy = 0;
  double messages = 0;  ///< blocking messages, and waits for messages in flight
  double waits = 0;     ///< waits for the step that produces a message
};

/// Result of simulating a schedule.
struct Simulation {
  std::vector<std::vector<TimedStep>> ranks;  ///< steps of each rank with their times
  std::vector<RankTime> times;                ///< by rank
  double makespan = 0;                        ///< from the start of the first step to the end of the last
  double bubble = 0;                ///< makespan / work of the busiest rank - 1; (p - 1) / m for 1F1B of equal stages
  std::vector<int> peak_in_flight;  ///< for each rank: micro-batches of a chunk between forward and the end of backward
};

/// Simulates a schedule as the executor runs it. Each rank runs its steps in order, each as soon as its message has
/// arrived: `transfer` after the end of the producing step, plus `receive` once the receiver is idle. The sender is not
/// delayed. Linear in the number of steps. Throws ConfigError for a deadlock.
Simulation simulate(const parallel::Schedule& schedule, const ScheduleTimes& times);

}  // namespace trireme::plan
