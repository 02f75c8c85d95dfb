#pragma once

#include <string>

#include "bench/sass/table.hpp"

namespace trireme::sass {

/// Tables in Markdown: registers, spills, occupancy and bound of each kernel in the table, except fp16 ones, which
/// match those of bf16.
std::string report(const std::vector<Expectation>& table, const std::vector<Kernel>& kernels);

}  // namespace trireme::sass
