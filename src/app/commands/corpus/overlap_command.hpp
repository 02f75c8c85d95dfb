#pragma once

#include <string>
#include <vector>

#include "mpi/environment.hpp"

namespace trireme::app {

/// `trireme corpus overlap`: counts the n-grams of test sets that occur in text, and copies it without them.
/// Collective.
int overlap_command(const std::vector<std::string>& arguments, mpi::MpiEnvironment& environment);

}  // namespace trireme::app
