#pragma once

#include <functional>

#include "mpi/environment.hpp"

namespace trireme::mpi {

inline constexpr double default_startup_timeout_minutes = 5;

/// Runs the `main` of a program with ranks: sets up MPI and the log, calls `function` on every rank, and returns its
/// exit code.
///
/// An exception thrown by all ranks is printed once, and all exit cleanly with its exit code. Examples are a
/// CollectiveError and an invalid configuration. An exception that others do not throw within two seconds (a bug, a
/// full disk outside `collectively`) is printed with rank and host. It terminates the entire job with its exit code,
/// since the others wait for this rank. Exceptions other than trireme::Error count as ExitCode::environment.
///
/// A job whose ranks do not all reach MPI_Init within `startup_timeout_minutes` ends with ExitCode::hung; 0: no limit.
int run_main(int argc, char** argv, const std::function<int(MpiEnvironment&)>& function,
             double startup_timeout_minutes = default_startup_timeout_minutes);

}  // namespace trireme::mpi
