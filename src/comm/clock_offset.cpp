#include "src/comm/clock_offset.hpp"

#include <limits>

namespace trireme {
namespace {

void transfer(Communicator& comm, Transfer::Direction direction, int peer, double& value) {
  ImmediateStream host;
  const Transfer message{direction, peer, TensorView(&value, {1})};
  for (Work& work : comm.exchange(host, std::span(&message, 1))) work.wait(host);
}

}  // namespace

ClockOffset measure_clock_offset(Communicator& comm, const std::function<double()>& now_us) {
  constexpr int round_trips = 16;
  using enum Transfer::Direction;
  ClockOffset best;
  for (int rank = 1; rank < comm.size(); ++rank) {
    if (comm.rank() != 0 && comm.rank() != rank) continue;
    if (comm.rank() == rank) best.error_us = std::numeric_limits<double>::infinity();
    for (int i = 0; i < round_trips; ++i) {
      if (comm.rank() == 0) {
        double time_us = 0;
        transfer(comm, receive, rank, time_us);
        time_us = now_us();
        transfer(comm, send, rank, time_us);
        continue;
      }
      const double begin_us = now_us();
      double there_us = 0;
      transfer(comm, send, 0, there_us);
      transfer(comm, receive, 0, there_us);
      const double end_us = now_us();
      const double error_us = (end_us - begin_us) / 2;
      if (error_us < best.error_us) best = {there_us - (begin_us + end_us) / 2, error_us};
    }
  }
  return best;
}

}  // namespace trireme
