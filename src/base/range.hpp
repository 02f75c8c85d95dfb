#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace trireme {

/// Values that a number may have.
struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool is_open = false;  ///< excludes `min`

  constexpr bool contains(double value) const { return (is_open ? value > min : value >= min) && value <= max; }
  /// Completes "must be ...".
  std::string text() const {
    if (is_open && std::isinf(max)) return fmt::format("above {}", min);
    if (is_open) return fmt::format("above {} and at most {}", min, max);
    if (std::isinf(max)) return fmt::format("at least {}", min);
    if (std::isinf(min)) return fmt::format("at most {}", max);
    return fmt::format("between {} and {}", min, max);
  }
};
constexpr Range at_least(double min) { return {.min = min}; }
constexpr Range between(double min, double max) { return {min, max}; }
constexpr Range above(double min, double max = std::numeric_limits<double>::infinity()) { return {min, max, true}; }
/// Range of a count: at least one, and small enough for the product of two counts to fit into 64 bits.
constexpr Range countable() { return {1, std::numeric_limits<std::int32_t>::max()}; }

}  // namespace trireme
