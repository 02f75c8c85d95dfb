#include "src/report/curve.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace trireme::report {

Curve::Curve(std::int64_t first_x, std::int64_t last_x, int columns) : first_x_(first_x) {
  const double range = static_cast<double>(last_x) - static_cast<double>(first_x) + 1;
  const double count = std::clamp(range, 1.0, static_cast<double>(columns));
  columns_.resize(static_cast<std::size_t>(count));
  columns_per_x_ = static_cast<double>(columns_.size()) / std::max(range, 1.0);
}

void Curve::add(std::int64_t x, std::optional<double> value) {
  const double place = (static_cast<double>(x) - static_cast<double>(first_x_)) * columns_per_x_;
  // Snaps a quotient just below an integer to that integer.
  const double index = std::clamp(place + 1e-9, 0.0, static_cast<double>(columns_.size() - 1));
  Column& column = columns_[static_cast<std::size_t>(index)];
  const bool is_new = column.points() == 0;
  column.first_x = is_new ? x : std::min(column.first_x, x);
  column.last_x = is_new ? x : std::max(column.last_x, x);
  // Floats reach neither bound. Beyond them, differences and steps of an axis would overflow or vanish.
  constexpr double most = 1e100, least = 1e-100;
  if (value && std::abs(*value) < least) value = 0;
  if (!value || !(std::abs(*value) <= most)) {
    ++column.not_finite;
    ++not_finite_;
    return;
  }
  column.min = column.count == 0 ? *value : std::min(column.min, *value);
  column.max = column.count == 0 ? *value : std::max(column.max, *value);
  column.sum += *value;
  column.last = *value;
  ++column.count;
  ++count_;
  if (!least_ || *value < least_->value) least_ = {x, *value};
  if (!greatest_ || *value > greatest_->value) greatest_ = {x, *value};
  if (!last_ || x >= last_->x) last_ = {x, *value};
}

std::vector<Column> Curve::columns() const {
  std::vector<Column> filled;
  for (const Column& column : columns_) {
    if (column.points() > 0) filled.push_back(column);
  }
  return filled;
}

std::vector<Column> merged(std::span<const Column> columns, double first_x, double last_x, int count) {
  const double columns_per_x = count / std::max(last_x - first_x + 1, 1.0);
  const auto place_of = [&](const Column& column) {
    return std::floor((static_cast<double>(column.first_x) - first_x) * columns_per_x + 1e-9);
  };
  std::vector<Column> result;
  double place = 0;
  for (const Column& column : columns) {
    const double next_place = place_of(column);
    if (result.empty() || next_place != place) {
      result.push_back(column);
    } else {
      Column& sum = result.back();
      sum.last_x = column.last_x;
      sum.not_finite += column.not_finite;
      if (column.count > 0) {
        sum.min = sum.count == 0 ? column.min : std::min(sum.min, column.min);
        sum.max = sum.count == 0 ? column.max : std::max(sum.max, column.max);
        sum.sum += column.sum;
        sum.count += column.count;
        sum.last = column.last;
      }
    }
    place = next_place;
  }
  return result;
}

void NewestRecords::survey(std::int64_t iteration) {
  if (pieces_.empty() || iteration <= previous_) {
    pieces_.push_back({iteration, std::numeric_limits<std::int64_t>::max()});
  }
  previous_ = iteration;
}

void NewestRecords::begin_reading() {
  std::int64_t end = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = pieces_.size(); i-- > 0;) {
    pieces_[i].end = end;
    end = std::min(end, pieces_[i].first);
  }
  first_ = end;
  last_ = previous_;
  piece_ = 0;
  previous_ = std::numeric_limits<std::int64_t>::min();
}

bool NewestRecords::is_newest(std::int64_t iteration) {
  if (iteration <= previous_ && piece_ + 1 < pieces_.size()) ++piece_;
  previous_ = iteration;
  return iteration < pieces_[piece_].end;
}

}  // namespace trireme::report
