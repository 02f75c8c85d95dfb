#include "src/report/scale.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trireme::report {
namespace {

/// Returns the least of 1, 2, 5 times a power of ten that is at least `step`.
double round_step(double step) {
  const double power = std::pow(10, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= step * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

/// Unit in which numbers of a size are short.
struct Unit {
  double size = 1;
  std::string suffix;
};
Unit unit_of(double greatest) {
  for (const auto& [size, suffix] : {std::pair{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}}) {
    if (greatest >= (size == 1e3 ? 1e4 : size) * (1 - 1e-9) && greatest < 1e15) return {size, suffix};
  }
  if (greatest >= 1e-3 && greatest < 1e15) return {};
  const int power = static_cast<int>(std::floor(std::log10(greatest) + 1e-9));
  return {std::pow(10, power), fmt::format("e{}", power)};
}

/// Adds the multiples of `step` from `min` to `max`, all with the same number of decimals. Integers that would need
/// more than two decimals in a unit are shown without one: "1000020", not "1.00002M".
void add_ticks(Scale& scale, double step) {
  const auto decimals_in = [&](const Unit& unit) {
    return std::clamp(-static_cast<int>(std::floor(std::log10(step / unit.size) + 1e-9)), 0, 15);
  };
  Unit unit = unit_of(std::max(std::abs(scale.min), std::abs(scale.max)));
  if (unit.size > 1 && step >= 1 && decimals_in(unit) > 2) unit = {};
  const int decimals = decimals_in(unit);
  const double begin = std::ceil(scale.min / step - 1e-6), end = std::floor(scale.max / step + 1e-6);
  for (double i = begin; i <= end && scale.ticks.size() < 50; ++i) {
    scale.ticks.push_back(
        {i * step, i == 0 ? "0" : fmt::format("{:.{}f}{}", i * step / unit.size, decimals, unit.suffix)});
  }
}

Scale log_scale(double least, double greatest, int max_ticks) {
  Scale scale{.min = least / 1.1, .max = greatest * 1.1, .is_log = true, .ticks = {}};
  const double low = std::log10(scale.min), high = std::log10(scale.max);
  const double stride = std::max(1.0, std::ceil((high - low) / max_ticks));
  const bool has_parts = high - low < 2.5;
  for (double power = std::floor(low); power <= high; ++power) {
    if (std::fmod(power, stride) != 0) continue;
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor > 1 && !has_parts) continue;
      const double value = factor * std::pow(10, power);
      if (value >= scale.min && value <= scale.max) scale.ticks.push_back({value, short_number(value, 3)});
    }
  }
  return scale;
}

}  // namespace

double Scale::place(double value) const {
  const double place = is_log ? std::log(value / min) / std::log(max / min) : (value - min) / (max - min);
  return value <= min ? 0 : std::clamp(place, 0.0, 1.0);
}

Scale vertical_scale(double least, double greatest, Axis axis, int max_ticks) {
  if (axis == Axis::decades && least > 0 && greatest / least >= 10) return log_scale(least, greatest, max_ticks);
  if (axis == Axis::from_zero) least = std::min(least, 0.0), greatest = std::max(greatest, 0.0);
  const double size = std::max(std::abs(least), std::abs(greatest));
  if (greatest - least <= 1e-9 * size || size == 0) {
    const double margin = size == 0 ? 1 : 0.05 * size;  // a single value is centred
    least -= margin;
    greatest += margin;
  }
  const double step = round_step((greatest - least) / max_ticks);
  Scale scale{
      .min = std::floor(least / step + 1e-9) * step, .max = std::ceil(greatest / step - 1e-9) * step, .ticks = {}};
  add_ticks(scale, step);
  return scale;
}

Scale horizontal_scale(double first, double last, int max_ticks) {
  Scale scale{.min = first, .max = std::max(last, first + 1), .ticks = {}};
  add_ticks(scale, std::max(1.0, round_step((scale.max - scale.min) / max_ticks)));
  return scale;
}

std::string short_number(double value, int digits) {
  if (!std::isfinite(value)) return "not finite";
  const double size = std::abs(value);
  if (size < 1e-300) return "0";
  const Unit unit = unit_of(size);
  std::string text = fmt::format("{:.{}g}", value / unit.size, std::max(digits, unit.size > 1 ? 3 : 1));
  if (text.find('e') != std::string::npos) text = fmt::format("{:.0f}", value / unit.size);  // "1000", not "1e+03"
  return text + unit.suffix;
}

}  // namespace trireme::report
