#pragma once

#include <functional>

#include "src/comm/communicator.hpp"

namespace trireme {

/// Difference between the clocks of two ranks.
struct ClockOffset {
  double us = 0;        ///< rank 0's clock less this rank's
  double error_us = 0;  ///< error bound: half of the fastest round trip
};

/// Measures the offset of this rank's clock `now_us` by round trips to rank 0 (Cristian 1989, Probabilistic clock
/// synchronization): the remote clock is read between the two local readings, and the fastest of 16 round trips counts.
/// The ranks take turns. Collective over `comm` (host memory).
ClockOffset measure_clock_offset(Communicator& comm, const std::function<double()>& now_us);

}  // namespace trireme
