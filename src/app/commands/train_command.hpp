#pragma once

#include <string>
#include <vector>

#include "mpi/environment.hpp"

namespace trireme::app {

/// `trireme train ARGUMENTS...`, on every rank: 0 when the run is complete, 75 when it stopped early with everything
/// saved.
int train_command(const std::vector<std::string>& arguments, mpi::MpiEnvironment& environment);

}  // namespace trireme::app
