#pragma once

#include "mpi/environment.hpp"

namespace trireme::test {

/// The MPI environment of a test program that runs on ranks, set up by support/mpi_main.cpp.
mpi::MpiEnvironment& mpi_environment();

/// All ranks. Shared by the tests of a program, each of which completes what it starts.
mpi::MpiCommunicator& world();

}  // namespace trireme::test
