#pragma once

#include <string>
#include <vector>

#include "mpi/environment.hpp"

namespace trireme::app {

/// `trireme info`: version, backends, libraries and GPUs, and under mpirun the ranks with their machines and
/// GPUs, on stdout.
int info_command(const std::vector<std::string>& arguments, mpi::MpiEnvironment& environment);

}  // namespace trireme::app
