#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "src/backend/kernels/gemm.hpp"

namespace trireme::parallel {

/// States of a rank's main gradients. A deferred one is undefined when an update begins, and the first product of the
/// update overwrites it: no pass clears it, and none reads it. All others are cleared, and hold a sum at any time.
class GradientSums {
 public:
  explicit GradientSums(std::size_t count) : states_(count) {}
  GradientSums& operator=(GradientSums&&) = delete;

  /// Defers gradient `number` from the next update on: all that write it call `next`.
  void defer(std::size_t number) { states_[number].deferred = true; }
  bool is_deferred(std::size_t number) const { return states_[number].deferred; }
  bool is_undefined(std::size_t number) const { return states_[number].undefined; }
  /// Begins an update.
  void begin() {
    for (State& state : states_) state.undefined = state.deferred;
  }
  /// Numbers of the gradients that are undefined.
  std::vector<std::size_t> undefined() const {
    std::vector<std::size_t> numbers;
    for (std::size_t i = 0; i < states_.size(); ++i) {
      if (states_[i].undefined) numbers.push_back(i);
    }
    return numbers;
  }
  /// Returns how a product is added to gradient `number`, which holds a sum afterwards.
  ProductSum next(std::size_t number) {
    return std::exchange(states_[number].undefined, false) ? ProductSum::overwrite : ProductSum::add;
  }

 private:
  struct State {
    bool deferred = false;
    bool undefined = false;
  };
  std::vector<State> states_;
};

/// One gradient among GradientSums; without these it always holds a sum.
class GradientSum {
 public:
  GradientSum() = default;
  GradientSum(GradientSums& sums, std::size_t number) : sums_(&sums), number_(number) {}

  void defer() const {
    if (sums_ != nullptr) sums_->defer(number_);
  }
  ProductSum next() const { return sums_ == nullptr ? ProductSum::add : sums_->next(number_); }

 private:
  GradientSums* sums_ = nullptr;
  std::size_t number_ = 0;
};

/// GradientSum::next of each group with rows (GemmKernels::grouped_linear); the others leave their gradients unchanged.
inline std::vector<ProductSum> next_sums(std::span<const GradientSum> sums, std::span<const std::int64_t> rows) {
  std::vector<ProductSum> next(sums.size(), ProductSum::add);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (rows[i] > 0) next[i] = sums[i].next();
  }
  return next;
}

}  // namespace trireme::parallel
