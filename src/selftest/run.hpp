#pragma once

#include <memory>
#include <vector>

#include "src/selftest/check.hpp"
#include "src/selftest/report.hpp"

namespace trireme::selftest {

using Checks = std::vector<std::unique_ptr<Check>>;

/// All checks in the order in which they run: first those of one rank, then those of several. `quick` leaves out
/// kernels at the sizes of a model, and rates of the device.
Checks all_checks(bool quick);

/// Runs the checks one after another on all ranks at the same time, and returns the same report on every rank.
/// Collective over `context.world`. A fault of one rank becomes a result. Errors of communication are thrown: after
/// them ranks cannot agree on anything.
Report run(const Checks& checks, Context& context);

}  // namespace trireme::selftest
