#include "src/selftest/kernels/kernel_check.hpp"

#include <algorithm>
#include <cmath>

#include "src/backend/kernels/warp_groups.hpp"
#include "src/tensor/dtype.hpp"

namespace trireme::selftest {
namespace {

struct Allowed {
  double relative;
  double absolute;
};

Allowed allowed_error(const Outcome& outcome, const Comparison& c) {
  constexpr double tf32_roundoff = 0x1p-11;
  if (c.rounds_to_tf32 && c.dtype == DType::fp32) return {0, 4 * tf32_roundoff};
  const double u = unit_roundoff(outcome.stored), wide = unit_roundoff(accumulation_type(outcome.stored));
  switch (outcome.precision) {
    case Precision::exact:
      return {0, 0};
    case Precision::rounded:
      return {1.01 * u + 4 * wide, 300 * wide + 0.001 * u};
    case Precision::mixed:
      return {2 * u, 4 * unit_roundoff(c.dtype) + 300 * wide};
  }
  return {0, 0};
}

/// Largest error of an outcome over the allowed one, and its element.
struct Error {
  double ratio = 0;
  std::string text;
};

Error error_of(const Outcome& outcome, const Outcome& expected, const Allowed& allowed, double slack) {
  double scale = 0;
  for (const double value : expected.values) {
    if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  }
  Error worst;
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    const double actual = outcome.values[i], right = expected.values[i];
    if (actual == right) continue;  // infinities too
    const double limit = slack * (allowed.relative * std::abs(right) + allowed.absolute * scale);
    double ratio = std::abs(actual - right) / limit;
    if (!std::isfinite(ratio)) ratio = std::numeric_limits<double>::max();  // NaN, or an error although none is allowed
    if (ratio <= worst.ratio) continue;
    worst = {ratio,
             fmt::format("element {} of {} is {:.8g} instead of {:.8g}", i, expected.values.size(), actual, right)};
  }
  return worst;
}

Result compare(const Case& test, const Comparison& c, const std::vector<Outcome>& expected) {
  Result result{.unit = "of allowed", .expected = 1};
  Trial first(c.backend, c.dtype, c.dtype);
  test.run(first);
  for (std::size_t i = 0; i < first.outcomes().size(); ++i) {
    const Outcome& outcome = first.outcomes()[i];
    const Error error = error_of(outcome, expected[i], allowed_error(outcome, c), c.slack);
    if (error.ratio <= result.value) continue;
    result.value = error.ratio;
    if (error.ratio > 1) result.detail = fmt::format("result {}: {}", i + 1, error.text);
  }
  result.passed = result.value <= 1;
  for (int repetition = 2; repetition <= 3 && result.passed; ++repetition) {
    Trial again(c.backend, c.dtype, c.dtype);
    test.run(again);
    for (std::size_t i = 0; i < again.outcomes().size() && result.passed; ++i) {
      result.passed = again.outcomes()[i].digest == first.outcomes()[i].digest;
      if (!result.passed) result.detail = fmt::format("result {} has other bits in repetition {}", i + 1, repetition);
    }
  }
  return result;
}

/// Extents not divisible by any tile.
constexpr Extents small_extents{.s = 13, .b = 3, .h = 48, .heads = 4, .kv_heads = 2, .d = 16, .f = 72, .v = 107};

Extents model_extents(const Backend& backend) {
  if (backend.memory_is_host()) {
    return {.s = 64, .b = 2, .h = 256, .heads = 4, .kv_heads = 2, .d = 64, .f = 512, .v = 1024};
  }
  return {.s = 512, .b = 2, .h = 1024, .heads = 16, .kv_heads = 4, .d = 64, .f = 4096, .v = 8192};
}

}  // namespace

std::vector<Result> Comparison::run(const Case& test) const {
  Trial expected(reference, dtype, DType::fp64);
  test.run(expected);
  GemmKernels& gemm = backend.gemm();
  std::vector<Result> results;
  for (const EpilogueForm form : forms) {
    if (!gemm.set_epilogue_form(form) && !results.empty()) break;
    Result result;
    try {
      result = compare(test, *this, expected.outcomes());
    } catch (const std::exception& error) {
      result = {.passed = false, .detail = error.what()};
    }
    const bool is_fused = gemm.latest_epilogue_is_fused();
    result.item = test.name;
    if (form != EpilogueForm::chosen) result.item += is_fused ? ", fused" : ", not fused";
    results.push_back(std::move(result));
    if (form == EpilogueForm::fused && !is_fused) break;
  }
  gemm.set_epilogue_form(EpilogueForm::chosen);
  return results;
}

std::vector<Result> Comparison::run_warp_groups() const {
  AttentionKernels& attention = backend.attention();
  std::vector<Result> results;
  if (size_of(dtype) > 2 || !use_warp_groups(attention, true)) return results;
  for (const Case& test : warp_group_cases()) results.push_back(run(test).front());
  use_warp_groups(attention, false);
  return results;
}

Check kernel_check(const Family& family, CaseSizes sizes, const std::vector<DType>& types) {
  const auto run = [=](Context& context) {
    std::vector<Result> results;
    const Fp8Cases fp8{context.backend.supports(Capability::fp8), context.backend.supports(Capability::fp8_blocks)};
    for (const DType dtype : types) {
      std::vector<Case> cases = family.cases_with(small_extents, dtype, fp8);
      if (sizes == CaseSizes::small_and_model) {
        for (Case& test : family.cases(model_extents(context.backend))) cases.push_back(std::move(test));
      }
      Comparison comparison{context.backend, context.reference, dtype, context.allow_tf32 && family.is_product()};
      if (family.is_product()) comparison.forms = {EpilogueForm::chosen, EpilogueForm::fused, EpilogueForm::separate};
      const auto add = [&](Result result) {
        result.check = fmt::format("{} {}", family.name, name_of(dtype));
        results.push_back(std::move(result));
      };
      for (const Case& test : cases) {
        const std::vector<Result> forms = comparison.run(test);
        for (Result result : forms) {
          if (!result.passed && comparison.is_right_in_parts(forms)) {
            result.detail += "; right where the epilogue is not fused";
          }
          add(std::move(result));
        }
      }
      if (family.is_attention()) std::ranges::for_each(comparison.run_warp_groups(), add);
    }
    return results;
  };
  return {family.name, "errors against the CPU in fp64, and bits of repeated runs", Scope::rank, run};
}

}  // namespace trireme::selftest
