#include "src/tensor/memory.hpp"

#include <algorithm>

namespace trireme {

TensorView Arena::allocate(DType dtype, const Shape& shape) {
  constexpr std::size_t alignment = 64;
  const std::size_t wanted = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
  const std::size_t size_bytes = std::max(alignment, (wanted + alignment - 1) / alignment * alignment);
  // The first block, from the present one on, with room for it; what is left in the blocks passed over stays unused
  // until the arena goes back.
  Mark next = position_;
  while (next.block < blocks_.size() && next.used + size_bytes > blocks_[next.block].size_bytes()) {
    ++next.block;
    next.used = 0;
  }
  if (next.block == blocks_.size()) blocks_.push_back(allocator_->allocate(std::max(size_bytes, block_bytes_)));
  std::byte* data = blocks_[next.block].data() + next.used;
  next.used += size_bytes;
  next.total += size_bytes;
  position_ = next;
  peak_bytes_ = std::max(peak_bytes_, next.total);
  return {data, dtype, shape};
}

std::size_t Arena::reserved_bytes() const {
  std::size_t sum = 0;
  for (const Buffer& block : blocks_) sum += block.size_bytes();
  return sum;
}

}  // namespace trireme
