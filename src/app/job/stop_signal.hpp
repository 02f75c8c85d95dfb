#pragma once

namespace trireme::app {

/// Effect of a stop signal (SIGUSR1, SIGTERM, SIGINT) on the program.
enum class OnStopSignal {
  end,  ///< ends it at once, as by default
  ask   ///< sets what stop_signal_received() returns; a second SIGINT ends the program
};

/// Starts the thread that takes the stop signals for the whole process, with sigwait. They stay blocked in all threads
/// that are started later, so no handler ever interrupts one that computes.
///
/// Call it first in main: it takes the signals that were blocked since the start of the program.
void take_stop_signals(OnStopSignal action);

/// Returns whether a stop signal has come to a program that is only asked to stop.
bool stop_signal_received();

}  // namespace trireme::app
