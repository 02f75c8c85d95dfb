#pragma once

#include <csignal>
#include <initializer_list>

namespace trireme {

/// The signals that ask a program to stop: SIGUSR1, SIGTERM and SIGINT.
inline sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGUSR1, SIGTERM, SIGINT}) sigaddset(&signals, signal);
  return signals;
}

/// Gives the calling thread a separate signal stack for its lifetime, unless it has one.
///
/// Every thread that computes needs one: oneDNN's generated code uses the stack pointer as a general register. Without
/// such a stack, the kernel writes a handler's frame wherever that register points. Throws EnvironmentError if memory
/// is insufficient.
void use_alternate_signal_stack();

/// Makes all handlers installed in this process, including those of libraries, run on alternate stacks (SA_ONSTACK).
/// Call it again after initialising a library that may install one.
void move_handlers_to_alternate_stacks();

}  // namespace trireme
