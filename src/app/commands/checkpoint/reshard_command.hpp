#pragma once

#include <string>
#include <vector>

#include "mpi/environment.hpp"

namespace trireme::app {

/// `trireme checkpoint reshard`: writes a step again, cut into the files that a job on another grid would have written.
/// Collective.
int reshard_command(const std::vector<std::string>& arguments, mpi::MpiEnvironment& environment);

}  // namespace trireme::app
