#pragma once

#include <string>
#include <vector>

#include "mpi/environment.hpp"

namespace trireme::app {

/// `trireme generate ARGUMENTS...`, on every rank: prompt and continuation, nothing else, on stdout.
int generate_command(const std::vector<std::string>& arguments, mpi::MpiEnvironment& environment);

}  // namespace trireme::app
