#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "src/base/check.hpp"

namespace trireme {

/// Extents of a dense tensor, at most five, slowest first.
class Shape {
 public:
  static constexpr int max_rank = 5;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const std::int64_t> extents) : rank_(static_cast<int>(extents.size())) {
    TRIREME_CHECK(extents.size() <= max_rank, ShapeError, "a tensor has at most {} dimensions", max_rank);
    std::copy(extents.begin(), extents.end(), extents_.begin());
  }

  int rank() const { return rank_; }
  std::int64_t operator[](int dimension) const { return extents_[dimension]; }
  std::int64_t& operator[](int dimension) { return extents_[dimension]; }
  std::int64_t back() const { return extents_[rank_ - 1]; }
  std::span<const std::int64_t> extents() const { return {extents_.data(), static_cast<std::size_t>(rank_)}; }

  /// Product of the extents; 1 for a scalar.
  std::int64_t numel() const {
    std::int64_t product = 1;
    for (const std::int64_t extent : extents()) product *= extent;
    return product;
  }

  friend bool operator==(const Shape& a, const Shape& b) {
    const auto x = a.extents(), y = b.extents();
    return std::equal(x.begin(), x.end(), y.begin(), y.end());
  }

 private:
  std::array<std::int64_t, max_rank> extents_{};
  int rank_ = 0;
};

/// "[3, 4, 5]"
std::string to_string(const Shape& shape);

/// A rectangular part of a logical tensor: element `offset` + i for 0 <= i < `extent` in every dimension. A rank's
/// shard of a parameter is a box.
struct Box {
  Shape offset;
  Shape extent;
  static Box whole(const Shape& shape);
  std::int64_t numel() const { return extent.numel(); }
  friend bool operator==(const Box&, const Box&) = default;
};

}  // namespace trireme
