#pragma once

#include <string>
#include <vector>

namespace trireme::report {

/// Range of a vertical axis.
enum class Axis {
  fitted,    ///< from the least to the greatest value
  decades,   ///< likewise, logarithmic if positive values span a factor of ten
  from_zero  ///< from zero
};

/// Mark of an axis.
struct Tick {
  double value = 0;
  std::string label;
};

/// Axis of a plot: a range of values, linear or logarithmic, and its ticks.
struct Scale {
  double min = 0, max = 1;
  bool is_log = false;
  std::vector<Tick> ticks;

  /// Returns the relative position of a value: 0 at `min`, 1 at `max`, clamped.
  double place(double value) const;
};

/// Returns the scale of a vertical axis for values from `least` to `greatest`, both finite. A linear one begins and
/// ends with a tick. `max_ticks` is about the number of ticks.
Scale vertical_scale(double least, double greatest, Axis axis, int max_ticks);

/// Returns the scale of whole numbers from `first` to `last`, with ticks between them.
Scale horizontal_scale(double first, double last, int max_ticks);

/// Returns a number in few characters: "0.25", "6e-4", "12.5k", "3.2M".
std::string short_number(double value, int digits = 4);

}  // namespace trireme::report
