#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/support/tolerance.hpp"

namespace trireme::test {

/// Expects `gradient` to be the derivative of `loss()` by each element of x, which the loss reads; by central
/// differences.
inline void expect_derivative(std::vector<double>& x, const std::vector<double>& gradient,
                              const std::function<double()>& loss, const std::string& what) {
  constexpr double step = 1e-5;
  std::vector<double> differences(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i];
    x[i] = kept + step;
    const double above = loss();
    x[i] = kept - step;
    differences[i] = (above - loss()) / (2 * step);
    x[i] = kept;
  }
  expect_close(gradient, differences, tolerance(DType::fp64, Operation::finite_difference), what);
}

}  // namespace trireme::test
