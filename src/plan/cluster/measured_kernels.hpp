#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/backend/kernels/kernel_call.hpp"

namespace trireme::plan {

struct MeasuredKernel {
  std::string kernel;         ///< line of a step's table (name_of(KernelKind))
  std::vector<double> shape;  ///< [m, n, k] of a product, [queries, keys, head size] of attention, else [bytes]
  double work = 0;            ///< FLOP of products and attention, else bytes
  double us = 0;
};

/// The call in that form, without a time.
MeasuredKernel measured_form(const KernelCall& call);

/// Measured kernel times of one machine, interpolated to other shapes.
class MeasuredKernels {
 public:
  MeasuredKernels() = default;
  /// ShapeError for a kernel without positive work, time and extents.
  explicit MeasuredKernels(const std::vector<MeasuredKernel>& kernels);

  bool empty() const { return rates_.empty(); }
  /// Returns the microseconds of `call`, ignoring its `us`; none if no such kernel was measured. The rate is that of
  /// the same measured shape if any. Else it is the geometric mean of all, weighted by 1 / distance^4 between the
  /// logarithms of extents and work.
  std::optional<double> time_us(const MeasuredKernel& call) const;

 private:
  struct Rate {
    std::vector<double> place;  ///< logarithms to base 2 of extents and work
    double log_rate = 0;        ///< log of the work per microsecond
  };
  std::map<std::string, std::vector<Rate>, std::less<>> rates_;  // by kernel
};

}  // namespace trireme::plan
