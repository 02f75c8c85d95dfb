#include "tests/ptx/group_products.hpp"

#include <utility>

namespace trireme::ptx {

void PendingProducts::reset(int registers) {
  groups_.assign(1, {});
  sums_.assign(static_cast<std::size_t>(registers), 0);
  left_ = sums_;
  modified_.assign(static_cast<std::size_t>(registers), false);
  fenced_ = false;
}

void PendingProducts::fence() {
  modified_.assign(modified_.size(), false);
  fenced_ = true;
}

void PendingProducts::add(std::vector<int> sums, std::vector<int> left, std::vector<Piece> pieces) {
  for (const int row : sums) ++sums_[static_cast<std::size_t>(row)];
  for (const int row : left) ++left_[static_cast<std::size_t>(row)];
  groups_.back().push_back({std::move(sums), std::move(left), std::move(pieces)});
}

void PendingProducts::commit() {
  groups_.emplace_back();
  fenced_ = false;
}

void PendingProducts::wait(std::size_t latest, int warp, SharedMemory& shared) {
  for (; groups_.size() > latest + 1; groups_.pop_front()) {
    for (const Product& product : groups_.front()) {
      for (const int row : product.sums) --sums_[static_cast<std::size_t>(row)];
      for (const int row : product.left) --left_[static_cast<std::size_t>(row)];
      for (const Piece& piece : product.pieces) shared.end_product(warp, piece.offset, piece.size_bytes);
    }
  }
}

}  // namespace trireme::ptx
