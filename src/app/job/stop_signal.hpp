#pragma once

namespace trireme::app {

/// Effect of a stop signal (SIGUSR1, SIGTERM, SIGINT) on the program.
enum class OnStopSignal {
  end,  ///< ends it immediately, as by default
  ask   ///< makes stop_signal_received() return true; a second SIGINT ends the program
};

/// Starts the thread that receives the stop signals of the process, with sigwait. They stay blocked in all threads
/// started later, so no handler ever interrupts a computing thread.
///
/// Call it first in main: it receives the signals blocked since the start of the program.
void take_stop_signals(OnStopSignal action);

/// Returns whether a stop signal has arrived, with OnStopSignal::ask.
bool stop_signal_received();

}  // namespace trireme::app
