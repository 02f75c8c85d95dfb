#pragma once

#include "src/selftest/check.hpp"
#include "src/selftest/kernels/trial.hpp"

namespace trireme::selftest {

/// Extents of the cases.
enum class CaseSizes {
  small,           ///< sizes that no tile divides: some milliseconds
  small_and_model  ///< also those of a model, which take longer to compare
};

/// Compares a family of kernels with the reference backend in fp64, on the same inputs, and its repeated runs with one
/// another bit by bit. `value` of a result is the largest error over the allowed one.
///
/// Allowed are |error| <= r |expected| + a max |expected|. With the unit roundoffs u of the stored type, t of the
/// training type, and U of the accumulation type: exact r = a = 0; rounded r = 1.01 u + 4 U, a = 300 U + 0.001 u; mixed
/// r = 2 u, a = 4 t + 300 U. Where products round their inputs to TF32: a = 4 / 2048. Sums cancel, and so their errors
/// are proportional to their terms: hence the maximum.
class KernelCheck final : public Check {
 public:
  using Cases = std::vector<Case> (*)(const Extents&);
  KernelCheck(std::string family, Cases cases, CaseSizes sizes, std::vector<DType> types)
      : family_(std::move(family)), cases_(cases), sizes_(sizes), types_(std::move(types)) {}

  std::string name() const override { return family_; }
  std::string measures() const override { return "errors against the CPU in fp64, and bits of repeated runs"; }
  std::vector<Result> run(Context& context) override;

 private:
  std::string family_;
  Cases cases_;
  CaseSizes sizes_;
  std::vector<DType> types_;
};

/// Checks of all families.
std::vector<std::unique_ptr<Check>> kernel_checks(CaseSizes sizes, const std::vector<DType>& types);

}  // namespace trireme::selftest
