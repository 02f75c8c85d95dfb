#include "src/app/job/stop_signal.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "mpi/environment.hpp"
#include "src/base/signals.hpp"

namespace trireme::app {
namespace {

std::atomic<bool> received{false};

/// Ends the process by the signal's default action.
void end_by(int signal) {
  std::signal(signal, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  std::raise(signal);
}

/// Prints one line on the first rank, bypassing the log, which may not exist yet. Prints nothing for SIGTERM, which
/// mpirun sends to the ranks of a failed job.
void acknowledge(int signal, bool is_first_rank) {
  if (!is_first_rank || signal == SIGTERM) return;
  const std::string line = std::string("trireme: SIG") + sigabbrev_np(signal) +
                           " received: the run saves and stops at the end of this iteration\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

[[noreturn]] void take(OnStopSignal action, bool is_first_rank) {
  const sigset_t signals = stop_signals();
  bool interrupted = false;
  while (true) {
    int signal = 0;
    if (sigwait(&signals, &signal) != 0) continue;
    if (action == OnStopSignal::end) {
      struct sigaction present {};
      sigaction(signal, nullptr, &present);
      if (present.sa_handler != SIG_IGN) end_by(signal);  // shells start background commands with SIGINT ignored
      continue;
    }
    if (signal == SIGINT && std::exchange(interrupted, true)) end_by(signal);
    if (!received.exchange(true)) acknowledge(signal, is_first_rank);
  }
}

}  // namespace

void take_stop_signals(OnStopSignal action) {
  sigset_t blocked = stop_signals();
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  // Read before MPI starts, which changes the environment while no other thread may read it.
  const bool is_first_rank = mpi::launched_rank() == 0;
  std::thread([action, is_first_rank] {
    sigset_t pipe;  // the reader of stderr may be gone
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    take(action, is_first_rank);
  }).detach();
}

bool stop_signal_received() { return received; }

}  // namespace trireme::app
