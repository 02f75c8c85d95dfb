#pragma once

#include <string>
#include <vector>

#include "mpi/environment.hpp"

namespace trireme::app {

/// `trireme eval ARGUMENTS...`, on every rank: one JSON line with the result on stdout.
int eval_command(const std::vector<std::string>& arguments, mpi::MpiEnvironment& environment);

}  // namespace trireme::app
