#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace trireme::exchange {

/// Items that are read ahead of the present one: as many as fit into `bytes`, at least one.
class ReadAhead {
 public:
  ReadAhead(std::size_t items, std::int64_t bytes) : sizes_(items), bytes_(bytes) {}
  /// Calls `prefetch(item)`, which returns the item's size, for all that should be read by the time item `present` is
  /// used, or while it is. Items are used about in their order.
  template <class Prefetch>
  void advance(std::size_t present, const Prefetch& prefetch) {
    next_ = std::max(next_, present);  // those between were left out
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
