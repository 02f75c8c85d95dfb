#pragma once

#include <vector>

#include "src/backend/backend.hpp"

namespace trireme::parallel {

/// UpdateRanges of a parameter buffer, built on the host. Parameters begin at multiples of `unit`, and the zeros after
/// one reach the next multiple: ranges are rounded up to it.
class RangeTable {
 public:
  static constexpr std::int64_t unit = 8;

  void add(std::int64_t begin, std::int64_t count, std::int64_t moment = 0, std::size_t rates = 0) {
    rows_.insert(rows_.end(), {elements_, begin, moment, static_cast<std::int64_t>(rates)});
    elements_ += (count + unit - 1) / unit * unit;
  }
  /// Copies the table to the backend's memory.
  void upload(Backend& backend) {
    const Shape shape{static_cast<std::int64_t>(rows_.size()) / UpdateRanges::columns, UpdateRanges::columns};
    table_ = Tensor(backend, DType::int64, shape);
    backend.copy_from_host(backend.compute_stream(), TensorView(rows_.data(), shape), table_);
  }
  /// The ranges, after `upload`. Valid as long as this object.
  UpdateRanges ranges() const { return {table_.view(), elements_}; }
  std::int64_t elements() const { return elements_; }

 private:
  std::vector<std::int64_t> rows_;
  std::int64_t elements_ = 0;
  Tensor table_;
};

}  // namespace trireme::parallel
