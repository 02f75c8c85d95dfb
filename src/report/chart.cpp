#include "src/report/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <ranges>
#include <span>

#include "src/report/markup.hpp"

namespace trireme::report {
namespace {

constexpr double left = 66, right = 24, top = 10, bottom = 40;

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
  double width, height;
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
  void add(const Series& series) {
    for (const Column& column : series.columns) {
      if (column.count == 0) continue;
      least = std::min(least, column.min);
      greatest = std::max(greatest, column.max);
    }
  }
};

std::string axes_of(const Plane& plane) {
  const double width = plane.width, height = plane.height;
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
  if (!unit.empty() || plane.y.is_log) {
    const char* const kind = !plane.y.is_log ? "" : unit.empty() ? "logarithmic" : ", logarithmic";
    text += fmt::format(R"(<text class="label unit" x="{}" y="{}">{}{}</text>)", left, height - 4, escaped(unit), kind);
  }
  return text;
}

/// Returns the path through a value of each column, continuing one that has begun.
template <class Columns>
std::string path_of(const Columns& columns, double (*value)(const Column&), const Plane& plane, bool begins = true) {
  std::string path;
  for (const Column& column : columns) {
    path += fmt::format("{}{:.1f} {:.1f}", begins && path.empty() ? "M" : "L", plane.at_x(column.middle_x()),
                        plane.at_y(value(column)));
  }
  return path;
}

/// Returns the area between the least and the greatest values.
std::string band_of(std::span<const Column> columns, const Plane& plane) {
  return path_of(
             columns, [](const Column& column) { return column.max; }, plane) +
         path_of(
             columns | std::views::reverse, [](const Column& column) { return column.min; }, plane, false) +
         "Z";
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

/// Returns a number of each column as a list; equal ones in a row are "value*count".
template <class Text>
std::string packed(const std::vector<Column>& columns, Text text_of) {
  std::string list;
  for (std::size_t begin = 0, end = 0; begin < columns.size(); begin = end) {
    const std::string text = text_of(begin);
    while (end < columns.size() && text_of(end) == text) ++end;
    list += fmt::format("{}{}", list.empty() ? "" : " ", text);
    if (end - begin > 1) list += fmt::format("*{}", end - begin);
  }
  return list;
}

/// Returns the columns of a series as attributes: `x` is the step from the previous column's first iteration, `span`
/// the distance from the first to the last iteration.
std::string data_of(const Series& series) {
  const std::vector<Column>& columns = series.columns;
  const auto add = [&](const char* name, auto value) {
    return fmt::format(R"( data-{}="{}")", name,
                       packed(columns, [&](std::size_t i) { return fmt::to_string(value(i)); }));
  };
  const auto add_value = [&](const char* name, double (*value)(const Column&)) {
    return fmt::format(R"( data-{}="{}")", name, packed(columns, [&](std::size_t i) {
                         return columns[i].count == 0 ? "-" : fmt::format("{:.5g}", value(columns[i]));
                       }));
  };
  std::string text = fmt::format(R"(class="curve" data-label="{}" data-style="{}" data-run="{}" data-markers="{}")",
                                 escaped(series.label), series.style, series.run, series.has_markers ? 1 : 0);
  text += add("x", [&](std::size_t i) { return columns[i].first_x - (i == 0 ? 0 : columns[i - 1].first_x); });
  text += add("span", [&](std::size_t i) { return columns[i].last_x - columns[i].first_x; });
  text += add("count", [&](std::size_t i) { return columns[i].count; });
  text += add("bad", [&](std::size_t i) { return columns[i].not_finite; });
  text += add_value("mean", [](const Column& column) { return column.mean(); });
  if (std::ranges::none_of(columns, [](const Column& column) { return column.min < column.max; })) return text;
  text += add_value("min", [](const Column& column) { return column.min; });
  return text + add_value("max", [](const Column& column) { return column.max; });
}

std::string curve_of(const Series& series, const Chart& chart, const Plane& plane) {
  const std::vector<Column> columns = merged(series.columns, chart.first_x, chart.last_x, chart_columns);
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
    const std::span piece(columns.data() + begin, end - begin);
    if (std::ranges::any_of(piece, [](const Column& column) { return column.min < column.max; })) {
      bands += band_of(piece, plane);
    }
    lines += path_of(
        piece, [](const Column& column) { return column.mean(); }, plane);
    if (series.has_markers || piece.size() == 1) {  // a line of one point is invisible
      for (const Column& column : piece) markers += marker_of(series, column, plane);
    }
    begin = end;
  }
  std::string text;
  if (!bands.empty()) text += fmt::format(R"(<path class="band c{}" d="{}"/>)", series.style % 8, bands);
  if (!lines.empty()) text += fmt::format(R"(<path class="line {}" d="{}"/>)", classes_of(series.style), lines);
  return element("g", data_of(series), text + gaps + markers);
}

std::string marks_of(const Chart& chart, const Plane& plane) {
  std::string text;
  for (const Mark& mark : chart.begins) {
    text += fmt::format(R"(<path class="life c{}" data-x="{}" d="M{:.1f} {}V{}"><title>{}</title></path>)",
                        mark.style % 8, mark.x, plane.at_x(mark.x), top, plane.height - bottom, escaped(mark.text));
  }
  for (const Mark& mark : chart.skipped) {
    text += fmt::format(R"(<path class="skip c{}" data-x="{}" d="M{:.1f} {}l6 6m0 -6l-6 6"><title>{}</title></path>)",
                        mark.style % 8, mark.x, plane.at_x(mark.x) - 3, plane.height - bottom - 8, escaped(mark.text));
  }
  return text;
}

/// Returns a text alternative for the picture.
std::string description_of(const Chart& chart, const Plane& plane) {
  std::string text;
  for (const Series& series : chart.series) {
    Values values;
    values.add(series);
    if (values.empty()) continue;
    const auto has_values = [](const Column& column) { return column.count > 0; };
    const Column& last = *std::ranges::find_if(series.columns | std::views::reverse, has_values);
    text += fmt::format("{}: {} to {}, last {}{}. ", series.label, plane.number(values.least),
                        plane.number(values.greatest), plane.number(last.last), plane.unit_text());
  }
  return text;
}

/// Returns the name of an axis in the page's data.
std::string_view axis_name(Axis axis) {
  return axis == Axis::decades ? "decades" : axis == Axis::from_zero ? "from_zero" : "fitted";
}

}  // namespace

int kept_columns(std::size_t runs) {
  const int multiple = 16 / static_cast<int>(std::clamp<std::size_t>(2 * runs, 2, 16));
  return multiple * chart_columns;
}

std::string svg_of(const Chart& chart) {
  Plane plane{.width = 1.0 * chart.width, .height = 1.0 * chart.height, .x = {}, .y = {}, .unit = {}};
  plane.x = horizontal_scale(chart.first_x, chart.last_x, 6);
  Values values;
  for (const Series& series : chart.series) values.add(series);
  plane.unit = value_unit(chart.unit, values.greatest);
  plane.y = values.empty()
                ? vertical_scale(0, 1, Axis::fitted, 5)
                : vertical_scale(values.least / plane.unit.size, values.greatest / plane.unit.size, chart.axis, 5);
  if (values.empty()) plane.y.ticks.clear();  // numbers would look like values
  std::string content = fmt::format(R"(<title id="{}-t">{}</title><desc id="{}-d">{}</desc>)", chart.id,
                                    escaped(chart.title), chart.id, escaped(description_of(chart, plane)));
  content += axes_of(plane) + marks_of(chart, plane);
  for (const Series& series : chart.series) content += curve_of(series, chart, plane);
  return element(
      "svg",
      fmt::format(
          R"(viewBox="0 0 {} {}" role="img" aria-labelledby="{}-t {}-d" data-unit="{}" data-axis="{}" data-first="{}" data-last="{}")",
          chart.width, chart.height, chart.id, chart.id, escaped(chart.unit), axis_name(chart.axis), chart.first_x,
          chart.last_x),
      content);
}

std::string swatch(int style) {
  return fmt::format(
      R"(<svg class="swatch" viewBox="0 0 34 10" aria-hidden="true"><path class="line {}" d="M1 5H33"/></svg>)",
      classes_of(style));
}

}  // namespace trireme::report
