#include "src/app/job/stop_signal.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "mpi/environment.hpp"
#include "src/app/job/terminal.hpp"
#include "src/base/signals.hpp"

namespace trireme::app {
namespace {

std::atomic<bool> received{false};
std::atomic<bool> interrupted{false};
std::atomic<OnStopSignal> on_signal{OnStopSignal::end};

/// Ends the process by the signal's default action.
void end_by(int signal) {
  restore_terminal();
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
  restore_terminal();
  const std::string line = std::string("trireme: SIG") + sigabbrev_np(signal) +
                           " received: the run saves and stops at the end of this iteration\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

[[noreturn]] void take(bool is_first_rank) {
  const sigset_t signals = stop_signals();
  bool is_second = false;
  while (true) {
    int signal = 0;
    if (sigwait(&signals, &signal) != 0) continue;
    const OnStopSignal action = on_signal;
    if (action == OnStopSignal::interrupt && signal == SIGINT) {
      interrupted = true;
      continue;
    }
    if (action != OnStopSignal::ask) {
      struct sigaction present {};
      sigaction(signal, nullptr, &present);
      if (present.sa_handler != SIG_IGN) end_by(signal);  // shells start background commands with SIGINT ignored
      continue;
    }
    if (signal == SIGINT && std::exchange(is_second, true)) end_by(signal);
    if (!received.exchange(true)) acknowledge(signal, is_first_rank);
  }
}

}  // namespace

void take_stop_signals(OnStopSignal action) {
  sigset_t blocked = stop_signals();
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  // Read before MPI starts, which changes the environment while no other thread may read it.
  const bool is_first_rank = mpi::launched_rank() == 0;
  on_signal = action;
  std::thread([is_first_rank] {
    sigset_t pipe;  // the reader of stderr may be gone
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    take(is_first_rank);
  }).detach();
}

void set_on_stop_signal(OnStopSignal action) { on_signal = action; }

bool take_interrupt() { return interrupted.exchange(false); }

bool stop_signal_received() { return received; }

}  // namespace trireme::app
