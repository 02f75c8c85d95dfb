#include "src/app/stop_signal.hpp"

#include <csignal>
#include <initializer_list>

namespace trireme::app {
namespace {

volatile std::sig_atomic_t received = 0;

extern "C" void on_stop_signal(int signal) {
  received = 1;
  if (signal == SIGINT) std::signal(SIGINT, SIG_DFL);
}

}  // namespace

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;  // no system call of the run may fail because of it
  for (const int signal : {SIGUSR1, SIGTERM, SIGINT}) sigaction(signal, &action, nullptr);
}

bool stop_signal_received() { return received != 0; }

}  // namespace trireme::app
