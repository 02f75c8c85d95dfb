#pragma once

#include <string>
#include <vector>

namespace trireme::app {

/// `trireme corpus inspect|verify|...`; `arguments` are those after "corpus". Returns the exit code; errors are thrown.
int corpus_command(const std::vector<std::string>& arguments);

}  // namespace trireme::app
