#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/report/page.hpp"

namespace trireme::report {

/// Returns the rows that sum up a run: (heading, markup).
std::vector<std::pair<std::string, std::string>> summary_of(const Run& run);

/// Returns the section of a run: attempts, checkpoints, grid and configuration. `index` is its number on the page.
std::string section_of(const Run& run, std::size_t index, const Page& page);

}  // namespace trireme::report
