#pragma once

#include <algorithm>
#include <memory>

namespace trireme::cuda {

/// Shares a GPU's multiprocessors between products and the collectives beside them.
///
/// A kernel keeps its multiprocessors until it ends. In backward a tensor group's collective and the product beside it
/// become ready together, and the product takes all: the collective begins after it, and nothing overlaps. So such a
/// product leaves free the blocks of the group, and those of messages, which may wait at any time. With 16 blocks of
/// 132 it is 12 % slower, and a collective of about its length takes no time of its own.
///
/// Collectives of data groups are not counted. They wait for one product at most and have the rest of the backward. A
/// recorded graph runs also beside such collectives as were not in flight at its recording: the algorithms, and with
/// them the bits, would differ from those of a run without graphs.
class Multiprocessors {
 public:
  explicit Multiprocessors(int count) : count_(count) {}
  Multiprocessors(const Multiprocessors&) = delete;
  Multiprocessors& operator=(const Multiprocessors&) = delete;

  using Token = std::shared_ptr<void>;
  /// Counts the blocks of a communicator during the lifetime of the token.
  [[nodiscard]] Token reserve(int blocks) { return add(reserved_, blocks); }
  /// Products enqueued during the lifetime of the token leave the reserved blocks free.
  [[nodiscard]] Token begin_collective() { return add(collectives_, 1); }
  /// Maximum for a product that is enqueued now; 0: no limit. Half of a GPU stays for products.
  int for_product() const { return collectives_ == 0 ? 0 : std::max(count_ - reserved_, (count_ + 1) / 2); }

 private:
  static Token add(int& sum, int count) {
    sum += count;
    return {nullptr, [&sum, count](void*) { sum -= count; }};
  }

  int count_;
  int reserved_ = 0;
  int collectives_ = 0;  // begun, and not yet waited for
};

}  // namespace trireme::cuda
