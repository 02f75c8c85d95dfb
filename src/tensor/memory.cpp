#include "src/tensor/memory.hpp"

#include <algorithm>

namespace trireme {

TensorView Arena::allocate(DType dtype, const Shape& shape) {
  constexpr std::size_t alignment = 64;
  const std::size_t wanted = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
  const std::size_t size_bytes = std::max(alignment, (wanted + alignment - 1) / alignment * alignment);
  std::byte* data = size_bytes <= block_bytes_ / 4 ? take(small_, position_.small, size_bytes, block_bytes_)
                                                   : take(large_, position_.large, size_bytes, size_bytes);
  position_.total += size_bytes;
  peak_bytes_ = std::max(peak_bytes_, position_.total);
  return {data, dtype, shape};
}

std::byte* Arena::take(Blocks& blocks, Mark::Position& position, std::size_t size_bytes, std::size_t new_block_bytes) {
  Mark::Position next = position;
  while (next.block < blocks.size() && next.used + size_bytes > blocks[next.block].size_bytes()) {
    ++next.block;
    next.used = 0;
  }
  if (next.block == blocks.size()) blocks.push_back(allocator_->allocate(new_block_bytes));
  std::byte* data = blocks[next.block].data() + next.used;
  next.used += size_bytes;
  position = next;
  return data;
}

std::size_t Arena::reserved_bytes() const {
  std::size_t sum = 0;
  for (const Blocks* blocks : {&small_, &large_}) {
    for (const Buffer& block : *blocks) sum += block.size_bytes();
  }
  return sum;
}

}  // namespace trireme
