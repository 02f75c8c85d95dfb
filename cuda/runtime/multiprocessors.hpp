#pragma once

#include <algorithm>
#include <memory>

namespace trireme::cuda {

/// Shares a GPU's multiprocessors between products and concurrent collectives.
///
/// A kernel holds its multiprocessors until it ends. In backward a tensor group's collective and a product become ready
/// together. If the product takes all, the collective begins after it, without overlap. Such a product therefore leaves
/// free the blocks of the group and of messages, which may be pending at any time. With 16 blocks of 132 it is 12 %
/// slower, and fully hides a collective of about its length.
///
/// Collectives of data groups are not counted. They wait for at most one product and have the rest of the backward
/// pass. A replayed graph may overlap with data-group collectives that were not in flight at capture: its algorithms,
/// and thus the bits, would differ from a run without graphs.
class Multiprocessors {
 public:
  explicit Multiprocessors(int count) : count_(count) {}
  Multiprocessors& operator=(Multiprocessors&&) = delete;

  using Token = std::shared_ptr<void>;
  /// Counts the blocks of a communicator during the lifetime of the token.
  [[nodiscard]] Token reserve(int blocks) { return add(reserved_, blocks); }
  /// Products enqueued during the lifetime of the token leave the reserved blocks free.
  [[nodiscard]] Token begin_collective() { return add(collectives_, 1); }
  /// Maximum for a product enqueued now; 0: no limit. Half of the GPU is always left for products.
  int for_product() const { return collectives_ == 0 ? 0 : std::max(count_ - reserved_, (count_ + 1) / 2); }

 private:
  static Token add(int& sum, int count) {
    sum += count;
    return {nullptr, [&sum, count](void*) { sum -= count; }};
  }

  int count_;
  int reserved_ = 0;
  int collectives_ = 0;  // started but not yet waited for
};

}  // namespace trireme::cuda
