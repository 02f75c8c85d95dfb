#pragma once

#include "src/selftest/check.hpp"
#include "src/selftest/kernels/trial.hpp"

namespace trireme::selftest {

/// Extents of the cases.
enum class CaseSizes {
  small,           ///< sizes not divisible by any tile: some milliseconds
  small_and_model  ///< also those of a model, which take longer to compare
};

/// A family of kernels and its cases.
struct Family {
  const char* name;
  std::vector<Case> (*cases)(const Extents&);
  /// Returns whether these are products, of which the backend may fuse several steps.
  bool is_product() const { return cases == gemm_cases; }
  bool is_attention() const { return cases == attention_cases; }
  /// All cases in `dtype`: products in FP8 are tested where the others are of bf16.
  std::vector<Case> cases_with(const Extents& e, DType dtype, const Fp8Cases& fp8) const {
    std::vector<Case> all = cases(e);
    if (is_product() && dtype == DType::bf16) {
      for (Case& one : fp8_cases(fp8)) all.push_back(std::move(one));
    }
    return all;
  }
};

inline constexpr Family families[] = {{"gemm", gemm_cases},           {"norm", norm_cases},
                                      {"attention", attention_cases}, {"elementwise", elementwise_cases},
                                      {"embedding", embedding_cases}, {"cross_entropy", cross_entropy_cases},
                                      {"optimizer", optimizer_cases}, {"reduce", reduce_cases},
                                      {"rotary", rotary_cases},       {"experts", expert_cases}};

/// Compares a case with the reference backend in fp64, on the same inputs, and its repeated runs bitwise with each
/// other. `value` of a result is the largest error over the allowed one. Errors thrown by the backend are also faults.
///
/// Allowed are |error| <= r |expected| + a max |expected|. With the unit roundoffs u of the stored type, t of the
/// training type, and U of the accumulation type: exact r = a = 0; rounded r = 1.01 u + 4 U, a = 300 U + 0.001 u; mixed
/// r = 2 u, a = 4 t + 300 U. If products round their inputs to TF32: a = 4 / 2048. Due to cancellation errors of sums
/// are proportional to their terms: hence the maximum.
struct Comparison {
  Backend& backend;
  Backend& reference;
  DType dtype;
  bool rounds_to_tf32 = false;
  double slack = 1;  ///< factor of all allowed errors
  /// Forms of a product's epilogue, each compared with fp64.
  std::vector<EpilogueForm> forms = {EpilogueForm::chosen};

  /// Returns a result for each form that the backend has for this case, in order; at least one. An epilogue that the
  /// library does not fuse has no result of the later forms. Its item names the form.
  std::vector<Result> run(const Case& test) const;
  /// Returns the results of attention by products of warp groups, and leaves these unused; none if the device or the
  /// type has none.
  std::vector<Result> run_warp_groups() const;
  /// Returns whether there are results of all forms, and that with a separate epilogue is right. `separate` is the last
  /// of the forms.
  bool is_right_in_parts(const std::vector<Result>& results) const {
    return forms.size() > 1 && results.size() == forms.size() && results.back().passed;
  }
};

/// Compares all cases of a family in each of the types.
Check kernel_check(const Family& family, CaseSizes sizes, const std::vector<DType>& types);

}  // namespace trireme::selftest
