#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "tests/ptx/instruction.hpp"
#include "tests/ptx/shared_memory.hpp"

namespace trireme::ptx {

/// Products that a warp group has begun, in order: its four warps must begin the same ones.
struct GroupProduct {
  const Instruction* instruction;
  std::uint64_t descriptor, left, adds;  ///< right and left factor in shared memory, addition
  bool operator==(const GroupProduct&) const = default;
};
using GroupProducts = std::vector<GroupProduct>;

/// Products of warp groups that a warp has begun and not waited for, with what must not be accessed meanwhile:
/// registers, and the right factor in shared memory. Registers changed after a wgmma.fence need another one.
class PendingProducts {
 public:
  struct Piece {
    std::size_t offset, size_bytes;
  };

  void reset(int registers);
  /// wgmma.fence: products may begin.
  void fence();
  bool is_fenced() const { return fenced_; }
  /// Notes that another instruction writes a register between fence and commit.
  void modify(int row) {
    if (fenced_) modified_[static_cast<std::size_t>(row)] = true;
  }
  bool is_modified(int row) const { return modified_[static_cast<std::size_t>(row)]; }

  /// Adds a product with these registers of sums and of its left factor, and these pieces of shared memory.
  void add(std::vector<int> sums, std::vector<int> left, std::vector<Piece> pieces);
  void commit();
  /// Ends all committed groups but the latest.
  void wait(std::size_t latest, int warp, SharedMemory& shared);
  /// Returns whether a fence or a product is under way.
  bool has_begun() const { return fenced_ || !empty(); }
  bool empty() const { return groups_.size() == 1 && groups_.back().empty(); }
  bool sums(int row) const { return sums_[static_cast<std::size_t>(row)] > 0; }
  bool uses(int row) const { return sums(row) || left_[static_cast<std::size_t>(row)] > 0; }

 private:
  struct Product {
    std::vector<int> sums, left;
    std::vector<Piece> pieces;
  };
  std::deque<std::vector<Product>> groups_{1};  // the last is not committed
  std::vector<int> sums_, left_;                // how many products have a register
  std::vector<bool> modified_;                  // since the fence
  bool fenced_ = false;
};

}  // namespace trireme::ptx
