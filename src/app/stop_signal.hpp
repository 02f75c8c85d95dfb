#pragma once

namespace trireme::app {

/// From now on SIGUSR1, SIGTERM and SIGINT ask the run to save and stop instead of ending the program. A second SIGINT
/// ends it.
void catch_stop_signals();

/// Whether one of them has come.
bool stop_signal_received();

}  // namespace trireme::app
