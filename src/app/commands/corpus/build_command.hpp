#pragma once

#include <string>
#include <vector>

#include "mpi/environment.hpp"

namespace trireme::app {

/// `trireme corpus build`; `arguments` are those behind it. Collective. Returns the exit code; errors are thrown.
int build_command(const std::vector<std::string>& arguments, mpi::MpiEnvironment& environment);

}  // namespace trireme::app
