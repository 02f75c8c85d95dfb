#include "src/selftest/startup.hpp"

#include "src/selftest/kernels/kernel_check.hpp"

namespace trireme::selftest {
namespace {

/// Extents that use tensor cores and fused epilogues: heads of 64 channels, and rows of a multiple of 16 bytes.
constexpr Extents startup_extents{.s = 32, .b = 2, .h = 128, .heads = 2, .kv_heads = 1, .d = 64, .f = 136, .v = 107};

/// Errors of a wrong kernel are far larger. A run must not fail over the last bits of a device's functions.
constexpr double slack = 8;

}  // namespace

std::vector<std::string> test_at_start(Backend& backend, Backend& reference, const StartupTest& test) {
  std::vector<std::string> warnings;
  std::string faults;
  for (const Family& family : families) {
    Comparison comparison{backend, reference, test.dtype, test.allow_tf32 && family.is_product(), slack};
    if (family.is_product()) comparison.forms = {EpilogueForm::fused, EpilogueForm::separate};
    for (const Case& one : family.cases(startup_extents)) {
      const std::vector<Result> results = comparison.run(one);
      std::string wrong;
      for (const Result& result : results) {
        if (result.passed) continue;
        wrong += fmt::format("{}{} {} {}: {}", wrong.empty() ? "" : "; ", family.name, name_of(test.dtype), result.item,
                             result.detail);
      }
      if (wrong.empty()) continue;
      if (comparison.is_right_in_parts(results)) {
        backend.gemm().separate_latest_epilogue();
        warnings.push_back(
            fmt::format("{}: the fused product gives wrong results, and its parts replace it: {}", test.where, wrong));
      } else {
        faults += (faults.empty() ? "" : "; ") + wrong;
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
