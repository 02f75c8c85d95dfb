#include "src/report/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/report/markup.hpp"
#include "src/report/scale.hpp"

namespace trireme::report {
namespace {

constexpr double width = 560, height = 254, left = 66, right = 24, top = 10, bottom = 40;

/// Returns the classes of a style: its colour, and its dashes, which also differ if colours repeat.
std::string classes_of(int style) { return fmt::format("c{} d{}", style % 8, style % 5); }

/// Display unit of values: bytes in powers of 1024, fractions in percent.
struct ValueUnit {
  double size = 1;  ///< divides values
  std::string name;
};
ValueUnit value_unit(const std::string& name, double greatest) {
  if (name == "%") return {0.01, name};
  ValueUnit unit{1, name};
  if (name != "bytes") return unit;
  for (const auto& [size, multiple] : {std::pair{1024.0, "KiB"}, {1048576.0, "MiB"}, {1073741824.0, "GiB"}}) {
    if (greatest >= size) unit = {size, multiple};
  }
  return unit;
}

/// Places of values in the picture, and their texts.
struct Plane {
  Scale x, y;
  ValueUnit unit;
  double at_x(double value) const { return left + x.place(value) * (width - left - right); }
  double at_y(double value) const { return height - bottom - y.place(value / unit.size) * (height - top - bottom); }
  std::string number(double value) const { return short_number(value / unit.size, 5); }
  std::string unit_text() const { return unit.name.empty() ? "" : " " + unit.name; }
};

/// Range of all finite values; empty if none.
struct Values {
  double least = std::numeric_limits<double>::infinity(), greatest = -std::numeric_limits<double>::infinity();
  bool empty() const { return least > greatest; }
};
Values values_of(const Chart& chart) {
  Values values;
  for (const Series& series : chart.series) {
    for (const Column& column : series.columns) {
      if (column.count == 0) continue;
      values.least = std::min(values.least, column.min);
      values.greatest = std::max(values.greatest, column.max);
    }
  }
  return values;
}

std::string axes_of(const Plane& plane) {
  const std::string& unit = plane.unit.name;
  std::string text;
  for (const Tick& tick : plane.y.ticks) {
    const double y = plane.at_y(tick.value * plane.unit.size);
    text += fmt::format(R"(<path class="grid" d="M{} {:.1f}H{}"/><text class="y" x="{}" y="{:.1f}">{}</text>)", left, y,
                        width - right, left - 7, y + 4, tick.label);
  }
  for (const Tick& tick : plane.x.ticks) {
    const double x = plane.at_x(tick.value);
    const double half_width = 5 * static_cast<double>(tick.label.size());  // in the largest font
    text += fmt::format(R"(<path class="axis" d="M{:.1f} {}v4"/><text class="x" x="{:.1f}" y="{}">{}</text>)", x,
                        height - bottom, std::min(x, width - half_width), height - bottom + 20, tick.label);
  }
  text += fmt::format(R"(<path class="axis" d="M{} {}H{}"/><text class="label" x="{}" y="{}">iteration</text>)", left,
                      height - bottom, width - right, width - right, height - 4);
  if (!unit.empty()) {
    text += fmt::format(R"(<text class="label unit" x="{}" y="{}">{}{}</text>)", left, height - 4, escaped(unit),
                        plane.y.is_log ? ", logarithmic" : "");
  } else if (plane.y.is_log) {
    text += fmt::format(R"(<text class="label unit" x="{}" y="{}">logarithmic</text>)", left, height - 4);
  }
  return text;
}

/// Returns the area between the least and the greatest values of the columns `begin` to `end`.
std::string band_of(const std::vector<Column>& columns, std::size_t begin, std::size_t end, const Plane& plane) {
  std::string path;
  for (std::size_t i = begin; i < end; ++i) {
    path += fmt::format("{}{:.1f} {:.1f}", i == begin ? "M" : "L", plane.at_x(columns[i].middle_x()),
                        plane.at_y(columns[i].max));
  }
  for (std::size_t i = end; i-- > begin;) {
    path += fmt::format("L{:.1f} {:.1f}", plane.at_x(columns[i].middle_x()), plane.at_y(columns[i].min));
  }
  return path + "Z";
}

std::string line_of(const std::vector<Column>& columns, std::size_t begin, std::size_t end, const Plane& plane) {
  std::string path;
  for (std::size_t i = begin; i < end; ++i) {
    path += fmt::format("{}{:.1f} {:.1f}", i == begin ? "M" : "L", plane.at_x(columns[i].middle_x()),
                        plane.at_y(columns[i].mean()));
  }
  return path;
}

/// Returns "iteration 7" or "iterations 7 to 9".
std::string iterations_of(const Column& column) {
  if (column.first_x == column.last_x) return fmt::format("iteration {}", column.first_x);
  return fmt::format("iterations {} to {}", column.first_x, column.last_x);
}

std::string marker_of(const Series& series, const Column& column, const Plane& plane) {
  return fmt::format(R"(<circle class="c{}" cx="{:.1f}" cy="{:.1f}" r="3"><title>{}</title></circle>)",
                     series.style % 8, plane.at_x(column.middle_x()), plane.at_y(column.mean()),
                     escaped(fmt::format("{}: {}{} at {}", series.label, plane.number(column.mean()), plane.unit_text(),
                                         iterations_of(column))));
}

std::string curve_of(const Series& series, const Plane& plane) {
  const std::vector<Column>& columns = series.columns;
  std::string bands, lines, gaps, markers;
  for (std::size_t begin = 0; begin < columns.size();) {
    if (columns[begin].not_finite > 0) {
      const double x = plane.at_x(columns[begin].middle_x());
      const bool is_one = columns[begin].first_x == columns[begin].last_x;
      gaps += fmt::format(R"(<path class="warn c{}" d="M{:.1f} {}l4 -7h-8z"><title>{}</title></path>)",
                          series.style % 8, x, top + 7,
                          escaped(fmt::format("{}: {}not finite at {}", series.label,
                                              is_one ? "" : fmt::format("{} ", columns[begin].not_finite),
                                              iterations_of(columns[begin]))));
    }
    if (columns[begin].count == 0) {
      ++begin;
      continue;
    }
    std::size_t end = begin + 1;
    while (end < columns.size() && columns[end].count > 0 && columns[end].not_finite == 0) ++end;
    const bool has_band = std::any_of(columns.begin() + static_cast<std::ptrdiff_t>(begin),
                                      columns.begin() + static_cast<std::ptrdiff_t>(end),
                                      [](const Column& column) { return column.min < column.max; });
    if (has_band) bands += band_of(columns, begin, end, plane);
    lines += line_of(columns, begin, end, plane);
    const bool is_alone = end - begin == 1;  // a line of one point is invisible
    for (std::size_t i = begin; i < end && (series.has_markers || is_alone); ++i) {
      markers += marker_of(series, columns[i], plane);
    }
    begin = end;
  }
  std::string text;
  if (!bands.empty()) text += fmt::format(R"(<path class="band c{}" d="{}"/>)", series.style % 8, bands);
  if (!lines.empty()) text += fmt::format(R"(<path class="line {}" d="{}"/>)", classes_of(series.style), lines);
  return text + gaps + markers;
}

std::string marks_of(const Chart& chart, const Plane& plane) {
  std::string text;
  for (const Mark& mark : chart.begins) {
    text += fmt::format(R"(<path class="life c{}" d="M{:.1f} {}V{}"><title>{}</title></path>)", mark.style % 8,
                        plane.at_x(mark.x), top, height - bottom, escaped(mark.text));
  }
  for (const Mark& mark : chart.skipped) {
    text += fmt::format(R"(<path class="skip c{}" d="M{:.1f} {}l6 6m0 -6l-6 6"><title>{}</title></path>)",
                        mark.style % 8, plane.at_x(mark.x) - 3, height - bottom - 8, escaped(mark.text));
  }
  return text;
}

/// Returns a text alternative for the picture.
std::string description_of(const Chart& chart, const Plane& plane) {
  std::string text;
  for (const Series& series : chart.series) {
    const Column* last = nullptr;
    double least = std::numeric_limits<double>::infinity(), greatest = -least;
    for (const Column& column : series.columns) {
      if (column.count == 0) continue;
      last = &column;
      least = std::min(least, column.min);
      greatest = std::max(greatest, column.max);
    }
    if (last == nullptr) continue;
    text += fmt::format("{}: {} to {}, last {}{}. ", series.label, plane.number(least), plane.number(greatest),
                        plane.number(last->last), plane.unit_text());
  }
  return text;
}

}  // namespace

std::string svg_of(const Chart& chart) {
  Plane plane;
  plane.x = horizontal_scale(chart.first_x, chart.last_x, 6);
  const Values values = values_of(chart);
  plane.unit = value_unit(chart.unit, values.greatest);
  plane.y = values.empty()
                ? vertical_scale(0, 1, Axis::fitted, 5)
                : vertical_scale(values.least / plane.unit.size, values.greatest / plane.unit.size, chart.axis, 5);
  if (values.empty()) plane.y.ticks.clear();  // numbers would look like values
  std::string content = fmt::format(R"(<title id="{}-t">{}</title><desc id="{}-d">{}</desc>)", chart.id,
                                    escaped(chart.title), chart.id, escaped(description_of(chart, plane)));
  content += axes_of(plane) + marks_of(chart, plane);
  for (const Series& series : chart.series) content += curve_of(series, plane);
  return element(
      "svg",
      fmt::format(R"(viewBox="0 0 {} {}" role="img" aria-labelledby="{}-t {}-d")", width, height, chart.id, chart.id),
      content);
}

std::string swatch(int style) {
  return fmt::format(
      R"(<svg class="swatch" viewBox="0 0 34 10" aria-hidden="true"><path class="line {}" d="M1 5H33"/></svg>)",
      classes_of(style));
}

}  // namespace trireme::report
