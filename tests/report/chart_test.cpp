#include "src/report/chart.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

namespace trireme::test {
namespace {

using report::Chart;
using report::Curve;

constexpr double not_finite = std::numeric_limits<double>::quiet_NaN();

/// A chart of one curve from iteration 1 on.
Chart chart_of(const std::vector<double>& values, int columns) {
  Curve curve(1, static_cast<std::int64_t>(values.size()), columns);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool is_finite = std::isfinite(values[i]);
    curve.add(static_cast<std::int64_t>(i + 1), is_finite ? std::optional(values[i]) : std::nullopt);
  }
  Chart chart;
  chart.id = "loss";
  chart.title = "Loss";
  chart.last_x = static_cast<double>(values.size());
  chart.series.push_back({"run", 0, curve.columns()});
  return chart;
}

TEST(Chart, DescribesItsCurvesAsText) {
  const std::string svg = svg_of(chart_of({3, 1, 2}, 10));
  EXPECT_NE(svg.find("aria-labelledby=\"loss-t loss-d\""), std::string::npos);
  EXPECT_NE(svg.find("<desc id=\"loss-d\">run: 1 to 3, last 2. </desc>"), std::string::npos);
}

TEST(Chart, DrawsABandOnlyForReducedCurves) {
  EXPECT_EQ(svg_of(chart_of({3, 1, 2}, 10)).find("class=\"band"), std::string::npos);
  EXPECT_NE(svg_of(chart_of({3, 1, 2, 5, 4, 3}, 3)).find("class=\"band"), std::string::npos);
}

TEST(Chart, PutsTheMaximumAtTheTop) {
  // The axes of 0 to 2 and of 1 to 3 end at the last values: y 10 is the top of the plot, 214 its bottom.
  Chart chart = chart_of({0, 2}, 10);
  EXPECT_NE(svg_of(chart).find("d=\"M66.0 214.0L536.0 10.0\""), std::string::npos) << svg_of(chart);
}

TEST(Chart, BreaksItsLineAtNonFiniteValues) {
  const std::string svg = svg_of(chart_of({1, 2, not_finite, 4, 5}, 10));
  const std::size_t line = svg.find("class=\"line");
  const std::string path = svg.substr(line, svg.find("/>", line) - line);
  EXPECT_EQ(std::count(path.begin(), path.end(), 'M'), 2);
  EXPECT_NE(svg.find("run: not finite at iteration 3"), std::string::npos);
}

std::ptrdiff_t occurrences(std::string_view text, std::string_view part) {
  std::ptrdiff_t count = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Chart, ShowsAnIsolatedPointAsAMarker) {
  EXPECT_EQ(occurrences(svg_of(chart_of({5}, 10)), "<circle"), 1);
  EXPECT_EQ(occurrences(svg_of(chart_of({5, 4, 3}, 10)), "<circle"), 0);
  Chart chart = chart_of({1, not_finite, 3, 4, not_finite, 6}, 10);  // 1 and 6 are isolated, 3 and 4 form a line
  EXPECT_EQ(occurrences(svg_of(chart), "<circle"), 2);
  EXPECT_NE(svg_of(chart).find("<title>run: 6 at iteration 6</title></circle>"), std::string::npos);
  chart.series.front().has_markers = true;
  EXPECT_EQ(occurrences(svg_of(chart), "<circle"), 4);
}

TEST(Chart, WithoutFiniteValuesHasNoNumbersOnItsVerticalAxis) {
  EXPECT_NE(svg_of(chart_of({1, 2}, 10)).find("class=\"y\""), std::string::npos);
  const std::string svg = svg_of(chart_of({not_finite, not_finite}, 10));
  EXPECT_EQ(svg.find("class=\"y\""), std::string::npos);
  EXPECT_EQ(occurrences(svg, "run: not finite"), 2);
}

TEST(Chart, KeepsTheLastIterationInsideThePicture) {
  Chart chart = chart_of({1, 2}, 10);
  chart.first_x = 1000000;
  chart.last_x = 1000100;
  // The picture is 560 wide; seven digits of the largest font are 70 wide.
  EXPECT_NE(svg_of(chart).find("x=\"525.0\" y=\"234\">1000100<"), std::string::npos) << svg_of(chart);
}

TEST(Chart, ScalesTheUnitOfBytes) {
  Chart chart = chart_of({1e9, 3e9}, 10), point = chart_of({3e9}, 10);
  chart.unit = point.unit = "bytes";
  EXPECT_NE(svg_of(chart).find("last 2.794 GiB"), std::string::npos);
  EXPECT_NE(svg_of(point).find("<title>run: 2.794 GiB at iteration 1</title>"), std::string::npos);
}

TEST(Chart, HoldsAllColumnsAsData) {
  // Iterations 1 to 6 in 3 columns of 2, the second with a value that is not finite.
  const std::string svg = svg_of(chart_of({1, 2, not_finite, 4, 5, 6}, 3));
  for (const char* text :
       {"data-first=\"1\" data-last=\"6\"", "data-x=\"1 2*2\"", "data-span=\"1*3\"", "data-count=\"2 1 2\"",
        "data-bad=\"0 1 0\"", "data-mean=\"1.5 4 5.5\"", "data-min=\"1 4 5\"", "data-max=\"2 4 6\""}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text << " in " << svg;
  }
  const std::string plain = svg_of(chart_of({7, 7, not_finite}, 3));
  EXPECT_NE(plain.find("data-mean=\"7*2 -\">"), std::string::npos) << plain;
}

TEST(Chart, DrawsFewerColumnsThanItHolds) {
  std::vector<double> values(4000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 7);
  const std::string svg = svg_of(chart_of(values, report::kept_columns(1)));
  const std::size_t line = svg.find("class=\"line");
  const std::string path = svg.substr(line, svg.find("/>", line) - line);
  EXPECT_EQ(std::count(path.begin(), path.end(), 'L') + 1, report::chart_columns);
  EXPECT_NE(svg.find(" data-count=\"2 1*23 2 1*23"), std::string::npos);  // 4000 iterations in 3840 columns
}

TEST(Chart, KeepsFewerColumnsOfManyRuns) {
  EXPECT_EQ(report::kept_columns(1), 8 * report::chart_columns);
  EXPECT_EQ(report::kept_columns(3), 2 * report::chart_columns);
  EXPECT_EQ(report::kept_columns(100), report::chart_columns);
}

TEST(Chart, NamesAllIterationsOfAColumn) {
  const std::string svg = svg_of(chart_of({1, 2, not_finite, 4}, 2));
  EXPECT_NE(svg.find("<title>run: 1.5 at iterations 1 to 2</title>"), std::string::npos) << svg;
  EXPECT_NE(svg.find("<title>run: 1 not finite at iterations 3 to 4</title>"), std::string::npos) << svg;
}

}  // namespace
}  // namespace trireme::test
