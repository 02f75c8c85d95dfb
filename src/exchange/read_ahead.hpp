#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace trireme::exchange {

/// Prefetches items ahead of the current one: as many as fit into `bytes`, at least one.
class ReadAhead {
 public:
  ReadAhead(std::size_t items, std::int64_t bytes) : sizes_(items), bytes_(bytes) {}
  /// Calls `prefetch(item)`, which returns the item's size, for all items that should be read before or while item
  /// `present` is used. Items are used roughly in order.
  template <class Prefetch>
  void advance(std::size_t present, const Prefetch& prefetch) {
    next_ = std::max(next_, present);  // items in between were skipped
    while (next_ < sizes_.size() && (next_ <= present + 1 || unused_bytes_ - sizes_[present] < bytes_)) {
      sizes_[next_] = prefetch(next_);
      unused_bytes_ += sizes_[next_++];
    }
    unused_bytes_ -= std::exchange(sizes_[present], 0);
  }

 private:
  std::vector<std::int64_t> sizes_;  // sizes of items read ahead and not yet used
  std::int64_t bytes_;
  std::int64_t unused_bytes_ = 0;
  std::size_t next_ = 0;
};

}  // namespace trireme::exchange
