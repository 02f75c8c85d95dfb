#pragma once

namespace trireme::app {

/// Effect of a stop signal (SIGUSR1, SIGTERM, SIGINT) on the program.
enum class OnStopSignal {
  end,       ///< ends it immediately, as by default
  ask,       ///< makes stop_signal_received() return true; a second SIGINT ends the program
  interrupt  ///< SIGINT makes take_interrupt() return true; other signals end the program
};

/// Starts the thread that receives the stop signals of the process, with sigwait. They stay blocked in all threads
/// started later, so no handler ever interrupts a computing thread.
///
/// Call it first in main: it receives the signals blocked since the start of the program.
void take_stop_signals(OnStopSignal action);

/// Changes the effect of signals to come.
void set_on_stop_signal(OnStopSignal action);

/// Returns whether SIGINT has arrived since the last call, with OnStopSignal::interrupt.
bool take_interrupt();

/// Returns whether a stop signal has arrived, with OnStopSignal::ask.
bool stop_signal_received();

}  // namespace trireme::app
