#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// Metric of a task. accuracy and f1 are from 0 to 1, correlations from -1 to 1; f1 and Matthews' correlation are those
/// of class 1.
enum class Metric { accuracy, f1, matthews, pearson, spearman };

/// Returns the metric's name as a key, "f1", or in a sentence, "F1".
std::string_view key_of(Metric metric);
std::string_view text_of(Metric metric);
/// Returns the names of a score, the mean of `metrics`: "f1", or of several "score"; and "F1" or "mean of accuracy and
/// F1".
std::string_view score_key(std::span<const Metric> metrics);
std::string score_text(std::span<const Metric> metrics);

/// Predictions and labels of examples with two classes, counted by whether each is class 1.
struct ConfusionCounts {
  double true_positives = 0, false_positives = 0, false_negatives = 0, true_negatives = 0;

  void add(bool label, bool prediction);
  /// Returns 2 t / (2 t + wrong ones), t the true positives; 0 if there are none of either.
  double f1() const;
  /// Returns the correlation of predictions and labels; 0 if either is constant.
  double matthews() const;
};

/// Returns Pearson's correlation of x and y, of equal size: sum (x - mean)(y - mean) over the root of the product of
/// the sums of squares; 0 if either is constant.
double pearson(std::span<const double> x, std::span<const double> y);
/// Returns Spearman's correlation: Pearson's of the ranks, of which equal values have the mean.
double spearman(std::span<const double> x, std::span<const double> y);

}  // namespace trireme::data
