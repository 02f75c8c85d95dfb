#pragma once

#include <string>
#include <vector>

namespace trireme::app {

/// `trireme checkpoint inspect|verify`; `arguments` are those after "checkpoint". Returns the exit code; errors are
/// thrown.
int checkpoint_command(const std::vector<std::string>& arguments);

}  // namespace trireme::app
