#pragma once

#include <vector>

#include "src/selftest/check.hpp"
#include "src/selftest/report.hpp"

namespace trireme::selftest {

using Checks = std::vector<Check>;

/// Returns all checks in execution order: first those of one rank, then those of several. `quick` omits kernels at
/// model sizes, and device rates.
Checks all_checks(bool quick);

/// Runs the checks one by one on all ranks simultaneously, and returns the same report on every rank. Collective over
/// `context.world`. A fault of one rank becomes a result. Communication errors are thrown: afterwards ranks cannot
/// agree on anything.
Report run(const Checks& checks, Context& context);

}  // namespace trireme::selftest
