#pragma once

#include <string>
#include <vector>

#include "src/report/curve.hpp"
#include "src/report/scale.hpp"

namespace trireme::report {

/// Curve of a chart. `style` selects its colour and dashes.
struct Series {
  std::string label;
  int style = 0;
  std::vector<Column> columns;
  bool has_markers = false;  ///< for sparse points
  int run = 0;               ///< number of its run on the page
};

/// Event at an iteration, with text for tooltips and screen readers.
struct Mark {
  double x = 0;
  int style = 0;
  std::string text;
};

/// Curves over iterations on common axes.
struct Chart {
  std::string id;  ///< name of its elements in the page
  std::string title;
  std::string unit;  ///< "bytes" also stands for their multiples; values in "%" are fractions
  Axis axis = Axis::fitted;
  std::vector<Series> series;
  std::vector<Mark> begins;   ///< starts of attempts that resume a run: vertical lines
  std::vector<Mark> skipped;  ///< skipped updates: crosses at the bottom
  double first_x = 1, last_x = 1;
  int width = 560, height = 254;  ///< size of the picture, in units of its texts
};

constexpr int chart_columns = 480;  ///< columns of a picture: about its width in pixels

/// Returns the number of columns in which a page of so many runs keeps each curve. They are more than a picture shows,
/// for a closer look, but at most about a megabyte of text for all curves of the page.
int kept_columns(std::size_t runs);

/// Returns the chart as an SVG element: title, description, grid, axes, curves. A curve of reduced columns is a band
/// from the least to the greatest value with a line through the means. All columns are in attributes `data-...`, which
/// page.js reads: lists of numbers, in which "3*5" stands for five times 3 and "-" for a missing one.
std::string svg_of(const Chart& chart);

/// Returns a small SVG element that shows how curves of a style are drawn.
std::string swatch(int style);

}  // namespace trireme::report
