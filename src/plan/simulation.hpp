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

/// How long everything takes that a schedule does.
struct ScheduleTimes {
  std::vector<ChunkTimes> chunks;  ///< by position in the order in which data passes them: chunk x stages + rank
  double transfer = 0;             ///< time of a message to another rank, while ranks compute
  double receive = 0;              ///< more time of it, which is in the receiver's way

  /// All chunks alike.
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
  double messages = 0;  ///< messages in its way, and waits for messages that have left
  double waits = 0;     ///< waits for the step that makes a message
};

/// Result of simulating a schedule.
struct Simulation {
  std::vector<std::vector<TimedStep>> ranks;  ///< steps of each rank with their times
  std::vector<RankTime> times;                ///< by rank
  double makespan = 0;                        ///< from the start of the first step to the end of the last
  double bubble = 0;                ///< makespan / work of the busiest rank - 1; (p - 1) / m for 1F1B of equal stages
  std::vector<int> peak_in_flight;  ///< for each rank: micro-batches of a chunk between forward and the end of backward
};

/// Simulates a schedule as the executor runs it. Each rank does its steps in order, each as soon as the message it
/// needs has arrived: `transfer` after the end of the step that makes it, and `receive` after the receiver has nothing
/// else to do. Its sender is not delayed. Takes time in proportion to the steps. Throws ConfigError for a deadlock.
Simulation simulate(const parallel::Schedule& schedule, const ScheduleTimes& times);

}  // namespace trireme::plan
