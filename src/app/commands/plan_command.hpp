#pragma once

#include <string>
#include <vector>

namespace trireme::app {

/// `trireme plan --show-schedule`: a pipeline's schedule as text on stdout, and as an SVG picture.
int plan_command(const std::vector<std::string>& arguments);

}  // namespace trireme::app
