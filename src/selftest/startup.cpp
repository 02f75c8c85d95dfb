#include "src/selftest/startup.hpp"

#include "src/selftest/kernels/kernel_check.hpp"

namespace trireme::selftest {
namespace {

/// Extents that use tensor cores and fused epilogues: heads of 64 channels, and rows of a multiple of 16 bytes.
constexpr Extents startup_extents{.s = 32, .b = 2, .h = 128, .heads = 2, .kv_heads = 1, .d = 64, .f = 136, .v = 107};

/// Errors of a wrong kernel are far larger. A run is not to end for the last bits of a device's functions.
constexpr double slack = 8;

}  // namespace

std::vector<std::string> test_at_start(Backend& backend, Backend& reference, const StartupTest& test) {
  std::vector<std::string> warnings;
  std::string faults;
  for (const Family& family : families) {
    const Comparison comparison{backend, reference, test.dtype, test.allow_tf32 && family.is_product(), slack};
    for (const Case& one : family.cases(startup_extents)) {
      const Result result = comparison.run(one);
      if (result.passed) continue;
      const std::string text = fmt::format("{} {} {}: {}", family.name, name_of(test.dtype), one.name, result.detail);
      if (comparison.is_right_in_parts(family, one)) {
        warnings.push_back(
            fmt::format("{}: the fused product gives wrong results, and its parts replace it: {}", test.where, text));
      } else {
        faults += (faults.empty() ? "" : "; ") + text;
      }
    }
  }
  TRIREME_CHECK(faults.empty(), EnvironmentError,
                "{}: kernels give wrong results: {}; leave this node out; where all nodes do the same, report it, and "
                "use <no_selftest> to train with them",
                test.where, faults);
  return warnings;
}

}  // namespace trireme::selftest
