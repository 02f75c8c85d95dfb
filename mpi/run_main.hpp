#pragma once

#include <functional>

#include "mpi/environment.hpp"

namespace trireme::mpi {

inline constexpr double default_startup_timeout_minutes = 5;

/// Runs the `main` of a program with ranks: sets up MPI and the log, calls `function` on every rank, and returns its
/// exit code.
///
/// An exception that all ranks throw (a CollectiveError, a configuration that every rank finds wrong) is printed once,
/// and all leave in order with its exit code. One that others do not share within two seconds (a bug, a full disk
/// outside `collectively`) is printed with rank and host, and ends the whole job with its exit code, since the others
/// wait for this rank somewhere. Exceptions other than trireme::Error count as ExitCode::environment.
///
/// A job whose ranks do not all reach MPI_Init within `startup_timeout_minutes` ends with ExitCode::hung; 0: no limit.
int run_main(int argc, char** argv, const std::function<int(MpiEnvironment&)>& function,
             double startup_timeout_minutes = default_startup_timeout_minutes);

}  // namespace trireme::mpi
