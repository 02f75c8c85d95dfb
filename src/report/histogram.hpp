#pragma once

#include <string>
#include <vector>

namespace trireme::report {

/// Shares of a whole by range, several of each.
struct Histogram {
  std::string title;
  std::string axis;                 ///< name of what the ranges divide
  std::vector<std::string> series;  ///< names of the shares
  struct Bar {
    std::string label;           ///< beginning of the range, for the axis
    std::string range;           ///< range, for tooltips
    std::vector<double> shares;  ///< [series] from 0 to 1
  };
  std::vector<Bar> bars;
};

/// Returns the histogram as an SVG file: bars of all series beside each other, with tooltips and a legend.
std::string svg_of(const Histogram& histogram);

}  // namespace trireme::report
