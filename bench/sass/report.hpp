#pragma once

#include <string>

#include "bench/sass/table.hpp"

namespace trireme::sass {

/// Tables in Markdown: registers, spills, occupancy and bound of each kernel that the table has, but those of
/// fp16, which do what those of bf16 do.
std::string report(const std::vector<Expectation>& table, const std::vector<Kernel>& kernels);

}  // namespace trireme::sass
