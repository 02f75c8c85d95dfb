#include "src/selftest/startup.hpp"

#include <algorithm>

#include "src/backend/kernels/warp_groups.hpp"
#include "src/selftest/kernels/kernel_check.hpp"

namespace trireme::selftest {
namespace {

/// Extents that use tensor cores and fused epilogues: heads of 64 channels, and rows of a multiple of 16 bytes.
constexpr Extents startup_extents{.s = 32, .b = 2, .h = 128, .heads = 2, .kv_heads = 1, .d = 64, .f = 136, .v = 107};

/// Errors of a wrong kernel are far larger. A run must not fail over the last bits of a device's functions.
constexpr double slack = 8;

/// "attention bf16 causal: element 0 ...", of a wrong result.
std::string text_of(const Family& family, DType dtype, const Result& result) {
  return fmt::format("{} {} {}: {}", family.name, name_of(dtype), result.item, result.detail);
}

}  // namespace

std::vector<std::string> test_at_start(Backend& backend, Backend& reference, const StartupTest& test) {
  std::vector<std::string> warnings;
  std::string faults;
  use_warp_groups(backend.attention(), false);
  for (const Family& family : families) {
    Comparison comparison{backend, reference, test.dtype, test.allow_tf32 && family.is_product(), slack};
    if (family.is_product()) comparison.forms = {EpilogueForm::fused, EpilogueForm::separate};
    for (const Case& one : family.cases_with(startup_extents, test.dtype, test.fp8)) {
      const std::vector<Result> results = comparison.run(one);
      std::string wrong;
      for (const Result& result : results) {
        if (result.passed) continue;
        wrong += (wrong.empty() ? "" : "; ") + text_of(family, test.dtype, result);
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
    if (!family.is_attention()) continue;
    const std::vector<Result> results = comparison.run_warp_groups();
    const auto wrong = std::ranges::find(results, false, &Result::passed);
    use_warp_groups(backend.attention(), !results.empty() && wrong == results.end());
    if (wrong == results.end()) continue;
    warnings.push_back(
        fmt::format("{}: attention by warp groups gives wrong results, and the kernels of other GPUs "
                    "replace it: {}",
                    test.where, text_of(family, test.dtype, *wrong)));
  }
  TRIREME_CHECK(faults.empty(), EnvironmentError,
                "{}: kernels give wrong results: {}; leave this node out; where all nodes do the same, report it, and "
                "use <no_selftest> to compute with them",
                test.where, faults);
  return warnings;
}

}  // namespace trireme::selftest
