#include "src/data/tasks/metrics.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trireme::data {
namespace {

struct Names {
  std::string_view key, text;
};
constexpr Names names[] = {{"accuracy", "accuracy"},
                           {"f1", "F1"},
                           {"matthews", "Matthews' correlation"},
                           {"pearson", "Pearson's correlation"},
                           {"spearman", "Spearman's correlation"}};

double ratio(double a, double b) { return b == 0 ? 0 : a / b; }

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Returns the ranks of the values, from 0; equal ones have the mean of theirs.
std::vector<double> ranks_of(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return values[i]; });
  std::vector<double> ranks(values.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t end = first + 1;
    while (end < order.size() && values[order[end]] == values[order[first]]) ++end;
    for (std::size_t i = first; i < end; ++i) ranks[order[i]] = static_cast<double>(first + end - 1) / 2;
    first = end;
  }
  return ranks;
}

}  // namespace

std::string_view key_of(Metric metric) { return names[static_cast<std::size_t>(metric)].key; }
std::string_view text_of(Metric metric) { return names[static_cast<std::size_t>(metric)].text; }

std::string_view score_key(std::span<const Metric> metrics) {
  return metrics.size() == 1 ? key_of(metrics.front()) : "score";
}

std::string score_text(std::span<const Metric> metrics) {
  std::vector<std::string_view> texts;
  for (const Metric metric : metrics) texts.push_back(text_of(metric));
  return fmt::format("{}{}", texts.size() == 1 ? "" : "mean of ", fmt::join(texts, " and "));
}

void ConfusionCounts::add(bool label, bool prediction) {
  ++(label ? (prediction ? true_positives : false_negatives) : (prediction ? false_positives : true_negatives));
}

double ConfusionCounts::f1() const {
  return ratio(2 * true_positives, 2 * true_positives + false_positives + false_negatives);
}

double ConfusionCounts::matthews() const {
  return ratio(true_positives * true_negatives - false_positives * false_negatives,
               std::sqrt((true_positives + false_positives) * (true_positives + false_negatives) *
                         (true_negatives + false_positives) * (true_negatives + false_negatives)));
}

double pearson(std::span<const double> x, std::span<const double> y) {
  const auto [x_low, x_high] = std::ranges::minmax(x);
  const auto [y_low, y_high] = std::ranges::minmax(y);
  if (x_low == x_high || y_low == y_high) return 0;  // the rounding of a mean would make it a correlation
  const double x_mean = mean_of(x), y_mean = mean_of(y);
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double dx = x[i] - x_mean, dy = y[i] - y_mean;
    xy += dx * dy;
    xx += dx * dx;
    yy += dy * dy;
  }
  return ratio(xy, std::sqrt(xx) * std::sqrt(yy));
}

double spearman(std::span<const double> x, std::span<const double> y) { return pearson(ranks_of(x), ranks_of(y)); }

}  // namespace trireme::data
