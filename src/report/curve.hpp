#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace trireme::report {

/// Points of a curve that fall into one column of a plot.
struct Column {
  std::int64_t first_x = 0, last_x = 0;  ///< smallest and largest of the existing points
  std::int64_t count = 0;                ///< number of finite values
  std::int64_t not_finite = 0;
  double min = 0, max = 0, sum = 0;  ///< sums over finite values
  double last = 0;

  std::int64_t points() const { return count + not_finite; }
  double mean() const { return sum / static_cast<double>(count); }
  double middle_x() const { return 0.5 * (static_cast<double>(first_x) + static_cast<double>(last_x)); }
};

/// Curve of any length, reduced to the least, the greatest and the mean value of each column of a plot, in memory that
/// depends only on the number of columns.
class Curve {
 public:
  /// Divides the integers from `first_x` to `last_x` evenly among at most `columns` columns.
  Curve(std::int64_t first_x, std::int64_t last_x, int columns);
  /// Adds a point; an empty value is one that was not finite. Points beyond the range count in the nearest column.
  void add(std::int64_t x, std::optional<double> value);

  /// Returns the columns that have points, from left to right.
  std::vector<Column> columns() const;
  std::int64_t count() const { return count_; }            ///< finite values
  std::int64_t not_finite() const { return not_finite_; }  ///< other values
  /// Returns whether two finite values differ.
  bool varies() const { return least_ && least_->value != greatest_->value; }
  /// Value of the curve.
  struct Point {
    std::int64_t x = 0;
    double value = 0;
  };
  std::optional<Point> least() const { return least_; }        ///< the first of equal ones
  std::optional<Point> greatest() const { return greatest_; }  ///< likewise
  std::optional<Point> last() const { return last_; }          ///< that with the greatest x

 private:
  std::int64_t first_x_;
  double columns_per_x_;
  std::vector<Column> columns_;
  std::int64_t count_ = 0, not_finite_ = 0;
  std::optional<Point> least_, greatest_, last_;
};

/// Merges columns, given from left to right, into at most `count` of equal width from `first_x` to `last_x`.
std::vector<Column> merged(std::span<const Column> columns, double first_x, double last_x, int count);

/// Finds the newest record of each iteration in a file written by several attempts of a run. An attempt that begins
/// before the end of the previous one repeats iterations; its records replace the older ones from there on.
///
/// The file is read twice: `survey` takes the iterations of all records in order, then `is_newest` takes them again.
class NewestRecords {
 public:
  void survey(std::int64_t iteration);
  /// Ends the survey.
  void begin_reading();
  bool is_newest(std::int64_t iteration);
  /// Returns whether an evaluation, recorded between these, was not replaced.
  bool is_kept(std::int64_t iteration) const { return pieces_.empty() || iteration < pieces_[piece_].end; }

  bool empty() const { return pieces_.empty(); }
  std::int64_t first() const { return first_; }
  std::int64_t last() const { return last_; }  ///< last of the newest records

 private:
  struct Piece {
    std::int64_t first = 0;
    std::int64_t end = 0;  ///< its records from here on were replaced
  };
  std::vector<Piece> pieces_;
  std::int64_t first_ = 0, last_ = 0, previous_ = 0;
  std::size_t piece_ = 0;
};

}  // namespace trireme::report
